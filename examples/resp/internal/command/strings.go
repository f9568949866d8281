package command

import (
	"math"
	"strconv"

	"github.com/weirnet/weir/examples/resp/internal/store"
	"github.com/weirnet/weir/handlers/codec/resp"
)

// maxStringBytes is Redis' proto-max-bulk-len, which bounds strings too.
const maxStringBytes = resp.DefaultMaxBulkBytes

func stringCommands() []command {
	return []command{
		{name: "get", arity: 2, flags: "readonly fast", first: 1, last: 1, step: 1, group: "string", summary: "Get the value of a key", run: get},
		{name: "set", arity: -3, flags: "write denyoom", first: 1, last: 1, step: 1, group: "string", summary: "Set the string value of a key", run: set},
		{name: "getset", arity: 3, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string", summary: "Set the string value of a key and return its old value", run: getSet},
		{name: "incr", arity: 2, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string", summary: "Increment the integer value of a key by one", run: incr},
		{name: "decr", arity: 2, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string", summary: "Decrement the integer value of a key by one", run: decr},
		{name: "incrby", arity: 3, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string", summary: "Increment the integer value of a key by the given amount", run: incrBy},
		{name: "decrby", arity: 3, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string", summary: "Decrement the integer value of a key by the given number", run: decrBy},
		{name: "mset", arity: -3, flags: "write denyoom", first: 1, last: -1, step: 2, group: "string", summary: "Set multiple keys to multiple values", run: mset},
		{name: "mget", arity: -2, flags: "readonly fast", first: 1, last: -1, step: 1, group: "string", summary: "Get the values of all the given keys", run: mget},
		{name: "append", arity: 3, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string", summary: "Append a value to a key", run: appendTo},
		{name: "strlen", arity: 2, flags: "readonly fast", first: 1, last: 1, step: 1, group: "string", summary: "Get the length of the value stored in a key", run: strlen},
	}
}

// setOptions are the words behind SET key value.
type setOptions struct {
	onlyNew, onlyOld, get, keep bool
	unit                        string // "", or the option that gives the expiry: "ex", "px", "exat", "pxat"
	expiry                      []byte
}

func get(s *Session) {
	sh := s.lock(s.args[1])
	s.getFrom(sh)
	s.unlock(sh)
}

// getFrom replies with the string under args[1]. False: something else lies there, and the reply says so.
func (s *Session) getFrom(sh *store.Shard) bool {
	e, ok := s.find(sh, s.args[1], store.String)
	switch {
	case !ok:
		return false
	case e == nil:
		s.null()
	default:
		resp.AppendBulk(s.out, e.Str)
	}
	return true
}

func set(s *Session) {
	o, ok := s.setOptions()
	if !ok {
		return
	}
	expireAt := int64(store.NoExpiry)
	if o.unit != "" {
		if expireAt, ok = s.setExpiry(&o); !ok {
			return
		}
	}
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	if o.get && !s.getFrom(sh) {
		return
	}
	e := sh.Find(s.args[1])
	if o.onlyNew && e != nil || o.onlyOld && e == nil {
		if !o.get {
			s.null()
		}
		return
	}
	e = put(sh, e, s.args[1], s.args[2], o.keep)
	if o.unit != "" {
		sh.ExpireAt(e, expireAt)
	}
	if !o.get {
		s.raw(replyOK)
	}
}

// put makes the key hold a string. e is what lies there, or nil.
func put(sh *store.Shard, e *store.Entry, key, value []byte, keepExpiry bool) *store.Entry {
	if e == nil {
		e = sh.Add(key, store.String)
	} else if !keepExpiry {
		sh.Persist(e)
	}
	e.SetString(value)
	sh.Touch(e)
	return e
}

func (s *Session) setOptions() (o setOptions, ok bool) {
	for i := 3; i < len(s.args); i++ {
		a := s.args[i]
		unit := ""
		switch {
		case is(a, "nx") && !o.onlyOld:
			o.onlyNew = true
		case is(a, "xx") && !o.onlyNew:
			o.onlyOld = true
		case is(a, "get"):
			o.get = true
		case is(a, "keepttl") && o.unit == "":
			o.keep = true
		case is(a, "ex"):
			unit = "ex"
		case is(a, "px"):
			unit = "px"
		case is(a, "exat"):
			unit = "exat"
		case is(a, "pxat"):
			unit = "pxat"
		default:
			s.raw(errSyntax)
			return o, false
		}
		if unit == "" {
			continue
		}
		// The same unit twice is fine in Redis: the last counts.
		if i++; o.keep || o.unit != "" && o.unit != unit || i == len(s.args) {
			s.raw(errSyntax)
			return o, false
		}
		o.unit, o.expiry = unit, s.args[i]
	}
	return o, true
}

// setExpiry is when a key expires, in milliseconds since 1970.
func (s *Session) setExpiry(o *setOptions) (at int64, ok bool) {
	at, ok = integer(o.expiry)
	if !ok {
		s.raw(errNotInteger)
		return 0, false
	}
	seconds := o.unit == "ex" || o.unit == "exat"
	if at <= 0 || seconds && at > math.MaxInt64/1000 {
		s.badExpire()
		return 0, false
	}
	if seconds {
		at *= 1000
	}
	if o.unit == "ex" || o.unit == "px" {
		at += s.set.store.Now()
	}
	if at <= 0 {
		s.badExpire()
		return 0, false
	}
	return at, true
}

func getSet(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	if s.getFrom(sh) {
		put(sh, sh.Find(s.args[1]), s.args[1], s.args[2], false)
	}
}

func incr(s *Session) { s.add(1) }

func decr(s *Session) { s.add(-1) }

func incrBy(s *Session) {
	if n, ok := s.integerArg(2); ok {
		s.add(n)
	}
}

func decrBy(s *Session) {
	n, ok := s.integerArg(2)
	if !ok {
		return
	}
	if n == math.MinInt64 {
		s.raw(errDecrOverflow)
		return
	}
	s.add(-n)
}

func (s *Session) add(delta int64) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.String)
	if !ok {
		return
	}
	var n int64
	if e != nil {
		if n, ok = integer(e.Str); !ok {
			s.raw(errNotInteger)
			return
		}
	}
	if delta > 0 && n > math.MaxInt64-delta || delta < 0 && n < math.MinInt64-delta {
		s.raw(errOverflow)
		return
	}
	n += delta
	if e == nil {
		e = sh.Add(s.args[1], store.String)
	}
	e.Str = strconv.AppendInt(e.Str[:0], n, 10)
	sh.Touch(e)
	resp.AppendInt(s.out, n)
}

func mset(s *Session) {
	if len(s.args)%2 == 0 {
		s.wrongArity(s.cmd.name)
		return
	}
	pairs := s.args[1:]
	locked := s.lockKeys(pairs, 2)
	defer s.unlockAll(locked)
	for i := 0; i < len(pairs); i += 2 {
		sh := locked.Shard(pairs[i])
		put(sh, sh.Find(pairs[i]), pairs[i], pairs[i+1], false)
	}
	s.raw(replyOK)
}

func mget(s *Session) {
	keys := s.args[1:]
	locked := s.lockKeys(keys, 1)
	defer s.unlockAll(locked)
	s.array(len(keys))
	for _, key := range keys {
		if e := locked.Shard(key).Find(key); e != nil && e.Kind == store.String {
			resp.AppendBulk(s.out, e.Str)
		} else {
			s.null()
		}
		if s.tooMuch() {
			return
		}
	}
}

func appendTo(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.String)
	if !ok {
		return
	}
	if e == nil {
		e = put(sh, nil, s.args[1], s.args[2], true)
	} else {
		if len(e.Str)+len(s.args[2]) > maxStringBytes {
			s.raw(errStringTooLong)
			return
		}
		e.Str = append(e.Str, s.args[2]...)
		sh.Touch(e)
	}
	s.int(len(e.Str))
}

func strlen(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	if e, ok := s.find(sh, s.args[1], store.String); ok && e != nil {
		s.int(len(e.Str))
	} else if ok {
		s.int(0)
	}
}
