package command

import (
	"math"

	"github.com/weirnet/weir/examples/resp/internal/store"
	"github.com/weirnet/weir/handlers/codec/resp"
)

func keyCommands() []command {
	return []command{
		{name: "del", arity: -2, flags: "write", first: 1, last: -1, step: 1, group: "generic", summary: "Delete a key", run: del},
		{name: "exists", arity: -2, flags: "readonly fast", first: 1, last: -1, step: 1, group: "generic", summary: "Determine if a key exists", run: exists},
		{name: "expire", arity: -3, flags: "write fast", first: 1, last: 1, step: 1, group: "generic", summary: "Set a key's time to live in seconds", run: expire},
		{name: "pexpire", arity: -3, flags: "write fast", first: 1, last: 1, step: 1, group: "generic", summary: "Set a key's time to live in milliseconds", run: pexpire},
		{name: "ttl", arity: 2, flags: "readonly fast", first: 1, last: 1, step: 1, group: "generic", summary: "Get the time to live for a key in seconds", run: ttl},
		{name: "pttl", arity: 2, flags: "readonly fast", first: 1, last: 1, step: 1, group: "generic", summary: "Get the time to live for a key in milliseconds", run: pttl},
		{name: "type", arity: 2, flags: "readonly fast", first: 1, last: 1, step: 1, group: "generic", summary: "Determine the type stored at key", run: typeOf},
		{name: "keys", arity: 2, flags: "readonly", group: "generic", summary: "Find all keys matching the given pattern", run: keys},
	}
}

func del(s *Session) {
	names := s.args[1:]
	locked := s.lockKeys(names, 1)
	defer s.unlockAll(locked)
	n := 0
	for _, name := range names {
		sh := locked.Shard(name)
		if e := sh.Find(name); e != nil {
			sh.Remove(e)
			n++
		}
	}
	s.int(n)
}

func exists(s *Session) {
	names := s.args[1:]
	locked := s.lockKeys(names, 1)
	defer s.unlockAll(locked)
	n := 0
	for _, name := range names {
		if locked.Shard(name).Find(name) != nil {
			n++
		}
	}
	s.int(n)
}

func expire(s *Session) { s.expireIn(1000) }

func pexpire(s *Session) { s.expireIn(1) }

// expireConditions are the words behind EXPIRE key time.
type expireConditions struct{ nx, xx, gt, lt bool }

// expireIn makes a key expire after args[2] units of that many milliseconds.
func (s *Session) expireIn(unitMillis int64) {
	when, ok := expireConditions{}, true
	if when, ok = s.expireConditions(); !ok {
		return
	}
	at, ok := s.integerArg(2)
	if !ok {
		return
	}
	if at > math.MaxInt64/unitMillis || at < math.MinInt64/unitMillis {
		s.badExpire()
		return
	}
	at *= unitMillis
	now := s.set.store.Now()
	if at > math.MaxInt64-now {
		s.badExpire()
		return
	}
	at += now
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e := sh.Find(s.args[1])
	if e == nil || !when.allow(e.ExpireAt(), at) {
		s.bool(false)
		return
	}
	if at <= now {
		sh.Remove(e)
	} else {
		sh.ExpireAt(e, at)
	}
	s.bool(true)
}

func (s *Session) expireConditions() (c expireConditions, ok bool) {
	for _, a := range s.args[3:] {
		switch {
		case is(a, "nx"):
			c.nx = true
		case is(a, "xx"):
			c.xx = true
		case is(a, "gt"):
			c.gt = true
		case is(a, "lt"):
			c.lt = true
		default:
			s.errorf("Unsupported option %s", trimLineBreaks(cString(a, len(a))))
			return c, false
		}
	}
	switch {
	case c.nx && (c.xx || c.gt || c.lt):
		s.raw(errExpireNX)
		return c, false
	case c.gt && c.lt:
		s.raw(errExpireGTLT)
		return c, false
	}
	return c, true
}

// allow reports whether the conditions permit a key that expires at old, or never, to expire at next. Never is later
// than any time.
func (c expireConditions) allow(old, next int64) bool {
	never := old == store.NoExpiry
	switch {
	case c.nx && !never,
		c.xx && never,
		c.gt && (never || next <= old),
		c.lt && !never && next >= old:
		return false
	}
	return true
}

// trimLineBreaks cuts off what Redis cuts off at the ends of the errors that it formats.
func trimLineBreaks(text string) string {
	for len(text) > 0 && (text[len(text)-1] == '\r' || text[len(text)-1] == '\n') {
		text = text[:len(text)-1]
	}
	return text
}

func ttl(s *Session) { s.ttl(1000) }

func pttl(s *Session) { s.ttl(1) }

func (s *Session) ttl(unitMillis int64) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e := sh.Find(s.args[1])
	switch {
	case e == nil:
		s.raw(":-2\r\n")
	case e.ExpireAt() == store.NoExpiry:
		s.raw(":-1\r\n")
	default:
		left := max(0, e.ExpireAt()-s.set.store.Now())
		resp.AppendInt(s.out, (left+unitMillis/2)/unitMillis)
	}
}

func typeOf(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	kind := store.None
	if e := sh.Find(s.args[1]); e != nil {
		kind = e.Kind
	}
	s.raw("+" + kind.String() + "\r\n")
}

func keys(s *Session) {
	pattern := s.args[1]
	all := len(pattern) == 1 && pattern[0] == '*'
	var found []string
	locked := s.lockAll(s.db)
	locked.Each(func(key string) {
		if all || store.Match(pattern, []byte(key), false) {
			found = append(found, key)
		}
	})
	s.unlockAll(locked)
	s.array(len(found))
	for _, key := range found {
		s.bulk(key)
	}
}
