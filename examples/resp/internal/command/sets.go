package command

import "github.com/weirnet/weir/examples/resp/internal/store"

func setCommands() []command {
	return []command{
		{name: "sadd", arity: -3, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "set", summary: "Add one or more members to a set", run: sadd},
		{name: "srem", arity: -3, flags: "write fast", first: 1, last: 1, step: 1, group: "set", summary: "Remove one or more members from a set", run: srem},
		{name: "spop", arity: -2, flags: "write fast", first: 1, last: 1, step: 1, group: "set", summary: "Remove and return one or multiple random members from a set", run: spop},
		{name: "smembers", arity: 2, flags: "readonly", first: 1, last: 1, step: 1, group: "set", summary: "Get all the members in a set", run: smembers},
		{name: "scard", arity: 2, flags: "readonly fast", first: 1, last: 1, step: 1, group: "set", summary: "Get the number of members in a set", run: scard},
	}
}

func sadd(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.SetKind)
	if !ok {
		return
	}
	if e == nil {
		e = sh.Add(s.args[1], store.SetKind)
	}
	n := 0
	for _, member := range s.args[2:] {
		if e.Set.Add(member) {
			n++
			sh.Touch(e)
		}
	}
	s.int(n)
}

func srem(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.SetKind)
	if !ok {
		return
	}
	n := 0
	if e != nil {
		for _, member := range s.args[2:] {
			if e.Set.Remove(member) {
				n++
				sh.Touch(e)
			}
		}
		sh.RemoveEmpty(e)
	}
	s.int(n)
}

func spop(s *Session) {
	if len(s.args) > 3 {
		s.raw(errSyntax)
		return
	}
	many, count := len(s.args) == 3, int64(1)
	if many {
		var ok bool
		if count, ok = s.countArg(2); !ok {
			return
		}
	}
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.SetKind)
	switch {
	case !ok:
		return
	case e == nil && many:
		s.setHeader(0)
		return
	case e == nil:
		s.null()
		return
	}
	n := int(min(count, int64(e.Set.Len())))
	if many {
		s.setHeader(n)
	}
	for range n {
		s.bulk(e.Set.RemoveAt(sh.Random(e.Set.Len())))
		sh.Touch(e)
	}
	sh.RemoveEmpty(e)
}

func smembers(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.SetKind)
	switch {
	case !ok:
		return
	case e == nil:
		s.setHeader(0)
		return
	}
	s.setHeader(e.Set.Len())
	for i := range e.Set.Len() {
		s.bulk(e.Set.At(i))
	}
}

func scard(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	if e, ok := s.find(sh, s.args[1], store.SetKind); ok && e != nil {
		s.int(e.Set.Len())
	} else if ok {
		s.int(0)
	}
}
