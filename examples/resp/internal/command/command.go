// Package command executes Redis commands against a store. It knows nothing of sockets: a Session takes the arguments
// of a request and appends the reply to a buffer, byte for byte what Redis 7.0 replies.
package command

import (
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/examples/resp/internal/store"
)

// ErrConfig is returned for a configuration that makes no sense.
var ErrConfig = errors.New("command: bad config")

// maxNameBytes is longer than any command's name.
const maxNameBytes = 16

// namePlaces is a power of two, some times the number of commands.
const namePlaces = 256

// Set is the table of commands over a store. Any goroutine may use it; it does not change.
type Set struct {
	store   *store.Store
	list    []*command
	places  [namePlaces]*command // each at the hash of its name or, where that is taken, behind
	started int64                // milliseconds since 1970

	sessions atomic.Int64
}

// command is an entry of the table.
type command struct {
	name    string
	arity   int // as Redis counts: with the name; negative: or more
	flags   string
	first   int // of the keys among the arguments
	last    int
	step    int
	group   string
	summary string
	run     func(*Session)
}

// New returns the commands over st.
func New(st *store.Store) (*Set, error) {
	if st == nil {
		return nil, ErrConfig
	}
	set := &Set{store: st, started: st.Now()}
	for _, group := range [][]command{
		connectionCommands(), stringCommands(), keyCommands(), listCommands(), setCommands(), hashCommands(),
		serverCommands(),
	} {
		for i := range group {
			set.add(&group[i])
		}
	}
	return set, nil
}

// Session is one client: which database it has selected. It belongs to its channel's loop.
type Session struct {
	set   *Set
	db    *store.DB
	index int // of db
	quit  bool

	// Of the request under way.
	cmd  *command
	args [][]byte
	out  *buffer.Buf
}

// NewSession returns a client that has selected database 0. Close ends it.
func (s *Set) NewSession() *Session {
	s.sessions.Add(1)
	return &Session{set: s, db: s.store.DB(0)}
}

// Close counts the client out.
func (s *Session) Close() { s.set.sessions.Add(-1) }

// Execute runs the request of which args[0] is the command's name and appends its reply to out. It borrows both until
// return. True: the client wants to be disconnected after this reply.
func (s *Session) Execute(args [][]byte, out *buffer.Buf) (quit bool) {
	s.args, s.out = args, out
	s.cmd = s.set.lookup(args[0])
	switch {
	case s.cmd == nil:
		s.unknownCommand()
	case s.cmd.arity > 0 && len(args) != s.cmd.arity, len(args) < -s.cmd.arity:
		s.wrongArity(s.cmd.name)
	default:
		s.cmd.run(s)
	}
	s.args, s.out = nil, nil
	return s.quit
}

// add enters a command, for New.
func (s *Set) add(c *command) {
	s.list = append(s.list, c)
	i := nameHash([]byte(c.name))
	for s.places[i] != nil {
		i = (i + 1) % namePlaces
	}
	s.places[i] = c
}

// lookup finds a command, whatever the case of its name. Every request does this: it is cheaper than a map of strings.
func (s *Set) lookup(name []byte) *command {
	if len(name) > maxNameBytes {
		return nil
	}
	for i := nameHash(name); ; i = (i + 1) % namePlaces {
		if c := s.places[i]; c == nil || is(name, c.name) {
			return c
		}
	}
}

// nameHash is the same for a name in upper and in lower case.
func nameHash(name []byte) uint {
	h := uint(len(name))
	for _, c := range name {
		h = h*31 + uint(c|0x20)
	}
	return h % namePlaces
}

// is reports whether an argument is a word, whatever its case. word is in lower case.
func is(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, c := range arg {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// integer reads an argument or a stored string as Redis does: no plus, no blanks, no leading zeros, no minus zero.
func integer(p []byte) (n int64, ok bool) {
	digits := p
	if len(p) > 0 && p[0] == '-' {
		digits = p[1:]
	}
	switch {
	case len(digits) == 0 || len(p) > 20:
		return 0, false
	case digits[0] == '0':
		return 0, len(p) == 1
	case digits[0] < '1' || digits[0] > '9': // ParseInt would take a sign and an underscore
		return 0, false
	}
	n, err := strconv.ParseInt(string(p), 10, 64)
	return n, err == nil
}

// integerArg is integer, and replies with the error when the argument is none.
func (s *Session) integerArg(i int) (n int64, ok bool) {
	if n, ok = integer(s.args[i]); !ok {
		s.raw(errNotInteger)
	}
	return n, ok
}

// countArg reads a count that must not be negative.
func (s *Session) countArg(i int) (n int64, ok bool) {
	if n, ok = integer(s.args[i]); !ok || n < 0 {
		s.raw(errNotPositive)
		return 0, false
	}
	return n, true
}

// find returns what lies under the key of a locked shard, when it is of the kind or nothing. ok is false, and the error
// is the reply, when it is of another kind.
func (s *Session) find(sh *store.Shard, key []byte, kind store.Kind) (e *store.Entry, ok bool) {
	e = sh.Find(key)
	if e != nil && e.Kind != kind {
		s.raw(errWrongType)
		return nil, false
	}
	return e, true
}
