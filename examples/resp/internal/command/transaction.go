package command

import (
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/examples/resp/internal/store"
)

// limits are what a client can make the server keep for it. Redis has no such bounds, or larger ones.
type limits struct {
	queuedBytes int // of requests behind MULTI, with requestBytes for each and argumentBytes for each argument
	watchedKeys int
	replyBytes  int // to one request: whoever asks for more is disconnected
}

func defaultLimits() limits {
	return limits{queuedBytes: 64 << 20, watchedKeys: 10_000, replyBytes: 1 << 30}
}

const (
	requestBytes  = 64
	argumentBytes = 24
)

// transaction is what stands between MULTI and EXEC, and what is watched.
type transaction struct {
	open   bool
	failed bool       // one of its requests was refused
	queued [][][]byte // requests, copied
	bytes  int        // they take
	watch  store.Watch
}

func transactionCommands() []command {
	return []command{
		{name: "multi", arity: 1, flags: "noscript loading stale fast allow_busy", group: "transactions", summary: "Start a transaction", atOnce: true, run: multi},
		{name: "exec", arity: 1, flags: "noscript loading stale skip_slowlog", group: "transactions", summary: "Execute all commands in a transaction", atOnce: true, run: exec},
		{name: "discard", arity: 1, flags: "noscript loading stale fast allow_busy", group: "transactions", summary: "Discard a transaction", atOnce: true, run: discard},
		{name: "watch", arity: -2, flags: "noscript loading stale fast allow_busy", first: 1, last: -1, step: 1, group: "transactions", summary: "Watch keys for changes before a transaction", atOnce: true, run: watch},
		{name: "unwatch", arity: 1, flags: "noscript loading stale fast allow_busy", group: "transactions", summary: "Forget about watched keys", run: unwatch},
	}
}

func multi(s *Session) {
	if s.tx.open {
		s.raw("-ERR MULTI calls can not be nested\r\n")
		return
	}
	s.tx.open = true
	s.raw(replyOK)
}

// queue keeps a request for EXEC.
func (s *Session) queue() {
	bytes := requestBytes
	for _, a := range s.args {
		bytes += argumentBytes + len(a)
	}
	if s.tx.bytes+bytes > s.set.limits.queuedBytes {
		s.tx.failed, s.tx.queued = true, nil
		s.raw("-ERR transaction is too large\r\n")
		return
	}
	s.tx.bytes += bytes
	flat := make([]byte, 0, bytes-requestBytes-argumentBytes*len(s.args))
	args := make([][]byte, len(s.args))
	for i, a := range s.args {
		start := len(flat)
		flat = append(flat, a...)
		args[i] = flat[start:len(flat):len(flat)]
	}
	s.tx.queued = append(s.tx.queued, args)
	s.raw("+QUEUED\r\n")
}

// exec runs what is queued. Nobody else sees a state between, since all locks are held.
func exec(s *Session) {
	switch {
	case !s.tx.open:
		s.raw("-ERR EXEC without MULTI\r\n")
		return
	case s.tx.failed:
		s.endTransaction()
		s.raw("-EXECABORT Transaction discarded because of previous errors.\r\n")
		return
	}
	s.set.store.LockAll()
	s.exclusive = true
	defer func() {
		s.exclusive = false
		s.set.store.Unlock()
	}()
	queued, changed := s.tx.queued, s.tx.watch.Changed()
	s.endTransaction()
	if changed {
		s.nullArray()
		return
	}
	s.array(len(queued))
	out := s.out
	for _, args := range queued {
		s.args = args
		s.cmd = s.set.lookup(args[0])
		s.resolve()(s)
		if s.tooMuch() || s.quit { // the rest runs all the same: it is all or nothing
			s.out = buffer.New(0)
		}
	}
	s.out = out
}

func discard(s *Session) {
	if !s.tx.open {
		s.raw("-ERR DISCARD without MULTI\r\n")
		return
	}
	s.endTransaction()
	s.raw(replyOK)
}

func watch(s *Session) {
	if s.tx.open {
		s.raw("-ERR WATCH inside MULTI is not allowed\r\n")
		return
	}
	if s.tx.watch.Len()+len(s.args)-1 > s.set.limits.watchedKeys {
		s.raw("-ERR too many watched keys\r\n")
		return
	}
	for _, key := range s.args[1:] {
		s.tx.watch.Add(s.db, key, false)
	}
	s.raw(replyOK)
}

func unwatch(s *Session) {
	s.tx.watch.Reset(s.exclusive)
	s.raw(replyOK)
}

// endTransaction forgets what is queued and watched.
func (s *Session) endTransaction() {
	s.tx.watch.Reset(s.exclusive)
	s.tx.open, s.tx.failed, s.tx.queued, s.tx.bytes = false, false, nil, 0
}

// tooMuch reports whether the reply has become larger than a reply may be. It is then given up, and the client with it.
func (s *Session) tooMuch() bool {
	if s.out.Len()-s.begin <= s.set.limits.replyBytes {
		return false
	}
	s.out.Truncate(s.begin)
	s.begin, s.quit = 0, true
	return true
}
