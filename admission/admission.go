// Package admission decides whether a connection is served before anything is made of it. A Ledger keeps the budgets of
// a server, over all its loops: connections, connections of one source, their rate, memory, descriptors. A connection
// takes from all of them or from none, and gives back exactly once, whatever way it ends.
package admission

import (
	"net"
	"net/netip"
	"time"
)

// Arrival is a connection that has just been accepted.
type Arrival struct {
	// Peer is who has connected: not valid for a Unix socket, nor where the system does not say (Unix tells them apart).
	Peer netip.AddrPort
	Unix bool
	// Listener is the address that was connected to. It may be the same value for all connections.
	Listener net.Addr
	// Loop is the number of the loop that asks, Open how many accepted connections the server has.
	Loop int
	Open int64
}

// Action is what becomes of a connection.
type Action uint8

// The actions.
const (
	// Serve lets it become a channel.
	Serve Action = iota
	// Busy sends the last words of the Verdict and closes.
	Busy
	// Reset closes with RST, without a word.
	Reset
	// Wait leaves it unserved until a connection of the server ends or RetryAfter has passed, a second where that is zero,
	// and then asks again; meanwhile its listener accepts nothing, and the kernel's queue takes what comes.
	Wait
)

// Reason says which budget was exceeded.
type Reason uint8

// The reasons. Accepted is none.
const (
	Accepted    Reason = iota
	Connections        // as many as there may be
	Reserved           // the rest is kept for High
	Share              // Low has its share
	PerSource          // the source has as many as it may
	Sources            // as many sources as may be known
	Rate               // too many in too short a time
	Memory
	Descriptors
	Other // a decision of one's own

	reasons
)

// String returns the reason's name, as Stats and logs have it.
func (r Reason) String() string {
	names := [reasons]string{
		"accepted", "connections", "reserved", "share", "per-source", "sources", "rate", "memory", "descriptors", "other",
	}
	if r < reasons {
		return names[r]
	}
	return "unknown"
}

// Priority is how important a connection is.
type Priority uint8

// The priorities. The zero Priority is Normal.
const (
	Normal Priority = iota
	High            // may use what is reserved: health checks, operators
	Low             // only up to a share
)

// Verdict is what was decided about an Arrival. The zero Verdict serves it.
type Verdict struct {
	Action Action
	Reason Reason
	// RetryAfter is when trying again may have a chance. Zero: it is not known.
	RetryAfter time.Duration
	// Words are what Busy sends: as much as the kernel takes at once, which is the rule for what fits into a packet. They
	// must stay as they are until the next Arrival of the same Loop.
	Words []byte
	// Ticket, when set, is released when the connection has ended, or could not become a channel.
	Ticket *Ticket
}
