//go:build linux

package load

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// ErrConfig is the error of a Config that cannot work.
var ErrConfig = errors.New("load: bad configuration")

// The kinds of load.
const (
	// Closed is a closed loop: each connection sends Pipeline messages in one write, and the next when all are answered.
	Closed = "closed"
	// Open is an open loop: messages are due at fixed times, whatever the server does, and latency counts from when a
	// message was due. So a server that stalls is charged for all that should have been sent meanwhile.
	Open = "open"
	// Churn is a closed loop of connections: connect, one echo, close with a reset, again.
	Churn = "churn"
)

const (
	maxConns    = 19_000 // the usual limit of descriptors here is 20,000
	maxRate     = 2_000_000
	maxWindow   = time.Minute
	maxPipeline = 1024
	maxFlight   = 4 << 20 // bytes on their way on one connection
)

// Config is a load.
type Config struct {
	Address   string // of the server: loopback only
	Kind      string
	Conns     int // that do something
	Idle      int // that do nothing, beside
	SizeBytes int // of a message; in a frame, of the payload
	Pipeline  int // Closed: messages in flight on each connection. Zero means 1
	Rate      float64
	Framed    bool
	Spin      bool // never sleep: takes a whole CPU, but neither wake-ups nor timers blur what is measured
	ServerPID int  // whose CPU time is read at both ends of a window; zero: nobody's
}

// validate returns where to connect.
func (c *Config) validate() (netip.AddrPort, error) {
	if c.Pipeline == 0 {
		c.Pipeline = 1
	}
	at, err := netip.ParseAddrPort(c.Address)
	switch {
	case err != nil:
		return at, fmt.Errorf("%w: %w", ErrConfig, err)
	case !at.Addr().Is4() || !at.Addr().IsLoopback():
		return at, fmt.Errorf("%w: %v is not an IPv4 loopback address", ErrConfig, at)
	case c.Kind != Closed && c.Kind != Open && c.Kind != Churn:
		return at, fmt.Errorf("%w: kind %q", ErrConfig, c.Kind)
	case c.Conns < 1 || c.Idle < 0 || c.Conns+c.Idle > maxConns:
		return at, fmt.Errorf("%w: %d active and %d idle connections, at most %d", ErrConfig, c.Conns, c.Idle, maxConns)
	case c.Pipeline < 1 || c.Pipeline > maxPipeline || c.SizeBytes < 1 || c.Pipeline*(c.SizeBytes+4) > maxFlight:
		return at, fmt.Errorf("%w: %d messages of %d bytes, at most %d bytes", ErrConfig, c.Pipeline, c.SizeBytes, maxFlight)
	case c.Kind == Open && (c.Rate <= 0 || c.Rate > maxRate):
		return at, fmt.Errorf("%w: %v messages a second", ErrConfig, c.Rate)
	}
	return at, nil
}

// Result is what was measured in one window.
type Result struct {
	Seconds  float64
	Messages int64 // answered within the window; Churn: connections

	ServerCPU time.Duration // of the whole process, within the window
	LoadCPU   time.Duration
	// BusyShare is the share of the window in which the load generator had something to do; the rest is its head-room.
	// It is known only with Spin, else it is 0.
	BusyShare float64

	P50, P90, P99, P999, Max time.Duration // of the messages answered or, Open, due within the window
	Unanswered               int64         // messages that had no answer some seconds after the window

	BadBytes int64 // bytes that were not those sent
	Errors   int64 // connections that failed
	Error    string
}
