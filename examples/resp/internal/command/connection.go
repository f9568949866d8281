package command

import (
	"math"

	"github.com/weirnet/weir/handlers/codec/resp"
)

func connectionCommands() []command {
	return []command{
		{name: "ping", arity: -1, flags: "fast", group: "connection", summary: "Ping the server", run: ping},
		{name: "echo", arity: 2, flags: "fast", group: "connection", summary: "Echo the given string", run: echo},
		{name: "select", arity: 2, flags: "loading stale fast", group: "connection", summary: "Change the selected database", run: selectDB},
		{name: "quit", arity: -1, flags: "fast", group: "connection", summary: "Close the connection", atOnce: true, run: quit},
	}
}

func ping(s *Session) {
	switch len(s.args) {
	case 1:
		s.raw("+PONG\r\n")
	case 2:
		resp.AppendBulk(s.out, s.args[1])
	default:
		s.wrongArity(s.cmd.name)
	}
}

func echo(s *Session) { resp.AppendBulk(s.out, s.args[1]) }

func selectDB(s *Session) {
	n, ok := s.integerArg(1)
	if !ok {
		return
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		s.raw(errNotInt32)
		return
	}
	db := s.set.store.DB(int(n))
	if db == nil {
		s.raw(errDatabase)
		return
	}
	s.db, s.index = db, int(n)
	s.raw(replyOK)
}

func quit(s *Session) {
	s.raw(replyOK)
	s.quit = true
}
