package command

import "github.com/weirnet/weir/examples/resp/internal/store"

func hashCommands() []command {
	return []command{
		{name: "hset", arity: -4, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "hash", summary: "Set the string value of a hash field", run: hset},
		{name: "hget", arity: 3, flags: "readonly fast", first: 1, last: 1, step: 1, group: "hash", summary: "Get the value of a hash field", run: hget},
		{name: "hdel", arity: -3, flags: "write fast", first: 1, last: 1, step: 1, group: "hash", summary: "Delete one or more hash fields", run: hdel},
		{name: "hgetall", arity: 2, flags: "readonly", first: 1, last: 1, step: 1, group: "hash", summary: "Get all the fields and values in a hash", run: hgetall},
	}
}

func hset(s *Session) {
	if len(s.args)%2 == 1 {
		s.wrongArity(s.cmd.name)
		return
	}
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.HashKind)
	if !ok {
		return
	}
	if e == nil {
		e = sh.Add(s.args[1], store.HashKind)
	}
	n := 0
	for pairs := s.args[2:]; len(pairs) > 0; pairs = pairs[2:] {
		if e.Hash.Set(pairs[0], pairs[1]) {
			n++
		}
	}
	sh.Touch(e)
	s.int(n)
}

func hget(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.HashKind)
	if !ok {
		return
	}
	if e != nil {
		if value, ok := e.Hash.Get(s.args[2]); ok {
			s.bulk(value)
			return
		}
	}
	s.null()
}

func hdel(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.HashKind)
	if !ok {
		return
	}
	n := 0
	if e != nil {
		for _, name := range s.args[2:] {
			if e.Hash.Remove(name) {
				n++
				sh.Touch(e)
			}
		}
		sh.RemoveEmpty(e)
	}
	s.int(n)
}

func hgetall(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.HashKind)
	switch {
	case !ok:
		return
	case e == nil:
		s.mapHeader(0)
		return
	}
	s.mapHeader(e.Hash.Len())
	for i := range e.Hash.Len() {
		name, value := e.Hash.At(i)
		s.bulk(name)
		s.bulk(value)
	}
}
