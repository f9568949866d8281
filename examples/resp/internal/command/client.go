package command

import (
	"fmt"
	"strings"
)

// maxNameLength bounds what a client says of itself.
const maxNameLength = 1 << 10

func clientCommands() []command {
	return []command{
		{
			name: "auth", arity: -2, flags: "noscript loading stale fast no_auth allow_busy", group: "connection",
			summary: "Authenticate to the server", run: auth,
		},
		{
			name: "hello", arity: -1, flags: "noscript loading stale fast no_auth allow_busy", group: "connection",
			summary: "Handshake with Redis", run: hello,
		},
		{
			name: "reset", arity: 1, flags: "noscript loading stale fast no_auth allow_busy", group: "connection",
			summary: "Reset the connection", atOnce: true, run: reset,
		},
		{
			name: "client", arity: -2, group: "connection", summary: "A container for client connection commands",
			subs: []subcommand{
				{"getname", 2, clientGetName},
				{"id", 2, func(s *Session) { s.int(int(s.id)) }},
				{"info", 2, clientInfo},
				{"no-evict", 3, clientSwitch},
				{"no-touch", 3, clientSwitch}, // since Redis 7.2
				{"setinfo", 4, clientSetInfo}, // since Redis 7.2
				{"setname", 3, clientSetName},
			},
		},
	}
}

// auth replies as a Redis whose default user has no password.
func auth(s *Session) {
	switch {
	case len(s.args) > 3:
		s.raw(errSyntax)
	case len(s.args) == 2:
		s.raw("-ERR AUTH <password> called without any password configured for the default user. " +
			"Are you sure your configuration is correct?\r\n")
	case s.admits(s.args[1]):
		s.raw(replyOK)
	}
}

// admits reports whether there is such a user, or replies that there is not.
func (s *Session) admits(user []byte) bool {
	if string(user) == "default" {
		return true
	}
	s.raw("-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	return false
}

func hello(s *Session) {
	proto := s.proto
	if len(s.args) > 1 {
		n, ok := integer(s.args[1])
		switch {
		case !ok:
			s.raw("-ERR Protocol version is not an integer or out of range\r\n")
			return
		case n != 2 && n != 3:
			s.raw("-NOPROTO unsupported protocol version\r\n")
			return
		}
		proto = int(n)
	}
	for i := 2; i < len(s.args); i++ {
		switch left := len(s.args) - 1 - i; {
		case is(s.args[i], "auth") && left >= 2:
			if !s.admits(s.args[i+1]) {
				return
			}
			i += 2
		case is(s.args[i], "setname") && left >= 1:
			if !s.nameable(s.args[i+1], "Client names") {
				return
			}
			s.name = string(s.args[i+1]) // also when a later option is wrong, as Redis does
			i++
		default:
			s.errorf("Syntax error in HELLO option '%s'", cString(s.args[i], len(s.args[i])))
			return
		}
	}
	s.proto = proto
	s.mapHeader(7)
	s.bulk("server")
	s.bulk("redis")
	s.bulk("version")
	s.bulk(compatibleVersion)
	s.bulk("proto")
	s.int(s.proto)
	s.bulk("id")
	s.int(int(s.id))
	s.bulk("mode")
	s.bulk("standalone")
	s.bulk("role")
	s.bulk("master")
	s.bulk("modules")
	s.array(0)
}

// reset makes the session a new one.
func reset(s *Session) {
	s.endTransaction()
	s.db, s.index, s.proto, s.name = s.set.store.DB(0), 0, 2, ""
	s.raw("+RESET\r\n")
}

// nameable reports whether text may be a client's name, or what the error says it is.
func (s *Session) nameable(text []byte, what string) bool {
	for _, c := range text {
		if c < '!' || c > '~' {
			s.errorf("%s cannot contain spaces, newlines or special characters.", what)
			return false
		}
	}
	if len(text) > maxNameLength {
		s.errorf("%s cannot be longer than %d bytes.", what, maxNameLength)
		return false
	}
	return true
}

func clientSetName(s *Session) {
	if s.nameable(s.args[2], "Client names") {
		s.name = string(s.args[2])
		s.raw(replyOK)
	}
}

func clientGetName(s *Session) {
	if s.name == "" {
		s.null()
		return
	}
	s.bulk(s.name)
}

// clientSetInfo keeps what a library says of itself, for CLIENT INFO.
func clientSetInfo(s *Session) {
	attribute := strings.ToLower(cString(s.args[2], len(s.args[2])))
	switch {
	case attribute != "lib-name" && attribute != "lib-ver":
		s.errorf("Unrecognized option '%s'", cString(s.args[2], previewBytes))
	case !s.nameable(s.args[3], attribute):
	case attribute == "lib-name":
		s.libName = string(s.args[3])
		s.raw(replyOK)
	default:
		s.libVersion = string(s.args[3])
		s.raw(replyOK)
	}
}

func clientInfo(s *Session) {
	queued := -1
	if s.tx.open {
		queued = len(s.tx.queued)
	}
	s.verbatim(fmt.Sprintf("id=%d name=%s db=%d multi=%d watch=%d cmd=client|info user=default resp=%d "+
		"lib-name=%s lib-ver=%s\n", s.id, s.name, s.index, queued, s.tx.watch.Len(), s.proto, s.libName, s.libVersion))
}

// clientSwitch takes a wish that means nothing here: no client is evicted, and no key is.
func clientSwitch(s *Session) {
	if is(s.args[2], "on") || is(s.args[2], "off") {
		s.raw(replyOK)
		return
	}
	s.raw(errSyntax)
}
