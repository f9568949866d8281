package command

import "github.com/weirnet/weir/examples/resp/internal/store"

func listCommands() []command {
	return []command{
		{name: "lpush", arity: -3, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "list", summary: "Prepend one or multiple elements to a list", run: lpush},
		{name: "rpush", arity: -3, flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "list", summary: "Append one or multiple elements to a list", run: rpush},
		{name: "lpop", arity: -2, flags: "write fast", first: 1, last: 1, step: 1, group: "list", summary: "Remove and get the first elements in a list", run: lpop},
		{name: "rpop", arity: -2, flags: "write fast", first: 1, last: 1, step: 1, group: "list", summary: "Remove and get the last elements in a list", run: rpop},
		{name: "lrange", arity: 4, flags: "readonly", first: 1, last: 1, step: 1, group: "list", summary: "Get a range of elements from a list", run: lrange},
		{name: "llen", arity: 2, flags: "readonly fast", first: 1, last: 1, step: 1, group: "list", summary: "Get the length of a list", run: llen},
	}
}

func lpush(s *Session) { s.push((*store.List).PushLeft) }

func rpush(s *Session) { s.push((*store.List).PushRight) }

func (s *Session) push(push func(*store.List, string)) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.ListKind)
	if !ok {
		return
	}
	if e == nil {
		e = sh.Add(s.args[1], store.ListKind)
	}
	for _, element := range s.args[2:] {
		push(e.List, string(element))
	}
	sh.Touch(e)
	s.int(e.List.Len())
}

func lpop(s *Session) { s.pop((*store.List).PopLeft) }

func rpop(s *Session) { s.pop((*store.List).PopRight) }

func (s *Session) pop(pop func(*store.List) string) {
	if len(s.args) > 3 {
		s.wrongArity(s.cmd.name)
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
	e, ok := s.find(sh, s.args[1], store.ListKind)
	switch {
	case !ok:
		return
	case e == nil && many:
		s.nullArray()
		return
	case e == nil:
		s.null()
		return
	}
	n := int(min(count, int64(e.List.Len())))
	if many {
		s.array(n)
	}
	for range n {
		s.bulk(pop(e.List))
		sh.Touch(e)
	}
	sh.RemoveEmpty(e)
}

func lrange(s *Session) {
	start, ok := s.integerArg(2)
	if !ok {
		return
	}
	stop, ok := s.integerArg(3)
	if !ok {
		return
	}
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	e, ok := s.find(sh, s.args[1], store.ListKind)
	if !ok {
		return
	}
	if e == nil {
		s.array(0)
		return
	}
	n := int64(e.List.Len())
	if start < 0 {
		start = max(0, start+n)
	}
	if stop < 0 {
		stop += n
	}
	stop = min(stop, n-1)
	if start > stop {
		s.array(0)
		return
	}
	s.array(int(stop - start + 1))
	for i := start; i <= stop; i++ {
		s.bulk(e.List.At(int(i)))
	}
}

func llen(s *Session) {
	sh := s.lock(s.args[1])
	defer s.unlock(sh)
	if e, ok := s.find(sh, s.args[1], store.ListKind); ok && e != nil {
		s.int(e.List.Len())
	} else if ok {
		s.int(0)
	}
}
