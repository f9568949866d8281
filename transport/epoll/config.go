// Package epoll is the transport on Linux epoll: it waits for readiness and makes the calls itself, level-triggered.
package epoll

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// Config configures a Transport. The zero value works.
type Config struct {
	// Raw lets Wait hold its P for up to RawWait before it tells Go's scheduler that it waits. It saves up to 30 % of
	// the CPU per message at moderate rates. Fewer transports than GOMAXPROCS may have it, else other goroutines starve
	// for up to RawWait.
	Raw bool
	// RawWait bounds the raw wait. Zero means 5 ms. Much shorter ones cost more than they save.
	RawWait time.Duration

	// Pool configures the loop's pool.
	Pool buffer.PoolConfig

	// ReceiveBlockBytes is the size of the blocks that are received into, and so what one event can deliver: a power of
	// two from 256 B to 1 MiB. Zero means 64 KiB.
	ReceiveBlockBytes int
	// ReceivesPerWait is how many sockets one Wait receives from; the other ready ones come with the next, without
	// another epoll_wait. Zero means 8: receiving from all before the first is dispatched makes every block cold.
	ReceivesPerWait int
	// AcceptsPerWait is how many connections of a listener one Wait accepts. Zero means 64.
	AcceptsPerWait int
	// SendBytesPerTurn is how much one socket sends before it waits for the next Wait, so that one fast peer does not
	// hold the loop. Zero means 1 MiB.
	SendBytesPerTurn int
}

// Counters are what only epoll has. They count since Open.
type Counters struct {
	EpollWaits    uint64 // epoll_wait calls, blocking ones included
	BlockingWaits uint64 // those of them that told Go's scheduler
	EpollCtls     uint64 // epoll_ctl calls
	Events        uint64 // events epoll_wait reported, wake-ups by Wake included
	Receives      uint64 // receive calls
	Sends         uint64 // send and sendfile calls
	Accepts       uint64 // accept calls
	BlocksTaken   uint64 // receive blocks taken from the pool
	BlocksLeft    uint64 // receive blocks that their holders kept past their turn
	HotBlocks     int    // receive blocks waiting to be received into
}

const (
	defaultRawWait           = 5 * time.Millisecond
	defaultReceiveBlockBytes = 64 << 10
	defaultReceivesPerWait   = 8
	defaultAcceptsPerWait    = 64
	defaultSendBytesPerTurn  = 1 << 20

	minReceiveBlockBytes = 256
	maxReceiveBlockBytes = 1 << 20
)

// withDefaults returns the configuration with its zero values filled in.
func (c Config) withDefaults() (Config, error) {
	if c.RawWait == 0 {
		c.RawWait = defaultRawWait
	}
	for _, f := range []struct {
		value *int
		zero  int
		name  string
	}{
		{&c.ReceiveBlockBytes, defaultReceiveBlockBytes, "ReceiveBlockBytes"},
		{&c.ReceivesPerWait, defaultReceivesPerWait, "ReceivesPerWait"},
		{&c.AcceptsPerWait, defaultAcceptsPerWait, "AcceptsPerWait"},
		{&c.SendBytesPerTurn, defaultSendBytesPerTurn, "SendBytesPerTurn"},
	} {
		if *f.value == 0 {
			*f.value = f.zero
		}
		if *f.value < 0 {
			return c, fmt.Errorf("epoll: %s is %d", f.name, *f.value)
		}
	}
	if c.RawWait < 0 {
		return c, fmt.Errorf("epoll: RawWait is %v", c.RawWait)
	}
	n := c.ReceiveBlockBytes
	if n < minReceiveBlockBytes || n > maxReceiveBlockBytes || bits.OnesCount(uint(n)) != 1 {
		return c, fmt.Errorf("epoll: ReceiveBlockBytes is %d, not a power of two from %d to %d", n,
			minReceiveBlockBytes, maxReceiveBlockBytes)
	}
	return c, nil
}

var _ transport.Transport = (*Transport)(nil)
