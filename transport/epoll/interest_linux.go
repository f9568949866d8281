package epoll

import (
	"syscall"

	"github.com/weirnet/weir/internal/sys"
)

// markDirty makes the next poll compare a socket's interest with what epoll has: once per Wait, whatever happened to it
// in between.
func (t *Transport) markDirty(s *socket) {
	if s.is(flagDirty) {
		return
	}
	s.flags |= flagDirty
	t.dirty = append(t.dirty, s.number)
}

// reconcile tells epoll what changed since the last poll.
func (t *Transport) reconcile() {
	for i := 0; i < len(t.dirty); i++ { // a failure may append
		s := t.sockets.at(t.dirty[i])
		s.flags &^= flagDirty
		if s.is(flagOpen) {
			t.reconcileSocket(s)
		}
	}
	t.dirty = t.dirty[:0]
}

func (t *Transport) reconcileSocket(s *socket) {
	events, needed := s.wants()
	inEpoll := s.is(flagInEpoll)
	var errno syscall.Errno
	switch {
	case inEpoll && events == s.interest && (needed || !s.is(flagHung)):
		return
	case !inEpoll && !needed:
		return
	case !inEpoll:
		errno = t.epoll.Add(int(s.fd), events, uint64(s.handle()))
		s.flags |= flagInEpoll
	case needed || !s.leaves():
		errno = t.epoll.Modify(int(s.fd), events, uint64(s.handle()))
	default:
		t.leave(s)
		return
	}
	t.counters.EpollCtls++
	s.interest = events
	if errno == 0 {
		return
	}
	// No memory, or more descriptors than fs.epoll.max_user_watches: nothing would ever happen on this socket.
	s.flags &^= flagInEpoll
	if s.is(flagConnecting) {
		t.failConnect(s, errno)
		return
	}
	for op := range operations {
		if s.has(op) {
			t.finish(s, op, 0, errno)
		}
	}
}

// leave takes a socket out of epoll. Whoever else accepts from a listener hears of the connections that this loop was
// told of alone and did not accept.
func (t *Transport) leave(s *socket) {
	t.counters.EpollCtls++
	t.epoll.Delete(int(s.fd))
	s.flags &^= flagInEpoll
	if s.flags&(flagListener|flagShared) == flagListener|flagShared {
		sys.WakeAcceptors(int(s.fd))
	}
}

// wants returns the events a socket needs and whether it needs to be in epoll at all: HUP and ERR come without asking.
// RDHUP is asked for only by a WatchClose that does not yet know of it; level-triggered, it would never stop.
func (s *socket) wants() (events uint32, needed bool) {
	switch {
	case s.is(flagListener):
		if s.has(reading) {
			// One loop of those that share the socket wakes for a connection, not all (epoll_ctl(2)).
			return sys.EpollIn | sys.EpollExclusive, true
		}
		return 0, false
	case s.is(flagConnecting):
		return sys.EpollOut, true
	}
	if s.has(reading) {
		events |= sys.EpollIn
	}
	if s.is(flagFull) {
		events |= sys.EpollOut
	}
	if s.has(watching) && !s.is(flagWatchBreak) {
		events |= sys.EpollRDHup
	}
	return events, events != 0 || s.has(watching)
}

// leaves reports whether a socket that waits for nothing leaves epoll rather than staying with an empty interest, which
// is cheaper when it soon waits again: a listener must (EPOLLEXCLUSIVE allows no EPOLL_CTL_MOD), a hung one would spin.
func (s *socket) leaves() bool { return s.is(flagListener | flagHung) }
