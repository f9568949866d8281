package main

import (
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/examples/ingest/internal/sink"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/handlers/watermark"
)

// listener is what the clients of one protocol have in common. Its fields do not change once it listens; any goroutine
// may read its counters.
type listener struct {
	protocol  protocol
	lossy     bool
	unescaped bool
	address   string // where it listens

	maxFrameBytes int
	batchBytes    int
	maxInFlight   int
	drainLimit    time.Duration
	watermark     watermark.Config

	level   *watermark.Shared // of the sink's queue and of what is decoded
	queue   *sink.Queue
	pool    *offload.Pool
	batches *batches
	logger  *slog.Logger

	counters counters
}

// counters are what a listener counts, in frames where nothing else is said.
type counters struct {
	connections atomic.Uint64 // clients
	open        atomic.Int64  // clients
	paused      atomic.Int64  // clients
	failed      atomic.Uint64 // clients that were closed with an error
	queued      atomic.Uint64 // given to the sink
	malformed   atomic.Uint64 // of these, kept as they are
	lost        atomic.Uint64 // refused by the sink
	tooLong     atomic.Uint64
	truncated   atomic.Uint64
}

// byAddress are listeners by where they listen.
type byAddress map[netip.AddrPort]*listener

// find returns the listener that has accepted a connection with that local address: the one of the address, or one of
// all addresses.
func (b byAddress) find(local net.Addr) *listener {
	at := addrPort(local)
	candidates := []netip.Addr{at.Addr(), netip.IPv6Unspecified()} // that one takes connections of both families
	if at.Addr().Is4() {
		candidates = []netip.Addr{at.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	for _, address := range candidates {
		if l := b[netip.AddrPortFrom(address, at.Port())]; l != nil {
			return l
		}
	}
	return nil
}

// addrPort returns a TCP address in one form; zero when a is none.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

func (l *listener) newDrainer() *drainer { return &drainer{limit: l.drainLimit} }

// dropped is how many frames the gate has dropped.
func (l *listener) dropped() (frames uint64) {
	for _, count := range l.watermark.Stats.Snapshot().Dropped {
		frames += count.Frames
	}
	return frames
}
