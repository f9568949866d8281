package weir

import (
	"fmt"
	"hash/fnv"
	"net/netip"
)

// Accept says how connections come to the loops of a Server. The zero Accept is AcceptReusePort.
type Accept string

// The ways to accept. A channel never changes its loop.
const (
	// AcceptReusePort gives each loop a listener of its own (SO_REUSEPORT): the kernel chooses by a hash of the addresses,
	// without a thought for who is busy. No loop wakes up for another's connection. It needs a TCP address to listen
	// on: for Unix sockets, and for what Serve adopts, AcceptHandoff takes its place.
	AcceptReusePort Accept = "reuseport"
	// AcceptExclusive gives all loops the same listener. The kernel wakes one of those that wait for each connection: on
	// io_uring the one that has waited longest, on epoll (EPOLLEXCLUSIVE) nearly always the same, so a server with time
	// to spare serves nearly all connections on one loop.
	AcceptExclusive Accept = "exclusive"
	// AcceptMutex lets one loop at a time accept from a common listener. It passes that on after 16 connections, and at
	// once when it has 7/8 of its part of MaxConnections, or of the completions that its transport has room for; a loop
	// that is stuck loses it when the watchdog finds that (WatchdogAfter). So loops get connections in turn, with little
	// more than one wake-up for each.
	AcceptMutex Accept = "mutex"
	// AcceptHandoff lets a loop of its own accept, which runs no handler, and hand each connection over to the less
	// loaded of two loops, or to that which Server.Place names. It spreads best, and costs a second wake-up.
	AcceptHandoff Accept = "handoff"
)

// PlaceByAddress is a Server.Place: all connections of one IP address go to the same loop.
func PlaceByAddress(peer netip.AddrPort, loops int) int {
	h := fnv.New64a()
	addr := peer.Addr().Unmap().As16()
	h.Write(addr[:])
	return int(h.Sum64() % uint64(loops))
}

// way is how a listener's connections come to n loops; single: it is one socket whatever is done.
func (a Accept) way(loops int, single bool) Accept {
	switch {
	case loops == 1:
		return AcceptExclusive
	case a == "" || a == AcceptReusePort:
		if single {
			return AcceptHandoff
		}
		return AcceptReusePort
	}
	return a
}

func (a Accept) validate() error {
	switch a {
	case "", AcceptReusePort, AcceptExclusive, AcceptMutex, AcceptHandoff:
		return nil
	}
	return fmt.Errorf("%w: Accept %q is not %q, %q, %q or %q",
		ErrConfig, a, AcceptReusePort, AcceptExclusive, AcceptMutex, AcceptHandoff)
}
