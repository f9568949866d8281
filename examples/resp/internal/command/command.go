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
	limits  limits

	sessions atomic.Int64
	lastID   atomic.Int64 // of a session
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
	atOnce  bool // also in a transaction
	subs    []subcommand
	run     func(*Session)
}

// subcommand is an entry below a command.
type subcommand struct {
	name  string
	arity int // with both names
	run   func(*Session)
}

// New returns the commands over st.
func New(st *store.Store) (*Set, error) {
	if st == nil {
		return nil, ErrConfig
	}
	set := &Set{store: st, started: st.Now(), limits: defaultLimits()}
	for _, group := range [][]command{
		connectionCommands(), clientCommands(), transactionCommands(), stringCommands(), keyCommands(), listCommands(),
		setCommands(), hashCommands(), serverCommands(),
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
	tx    transaction

	id                        int64
	proto                     int // 2 or 3
	name, libName, libVersion string

	// The last command that was looked up, with its name as it was sent: it is mostly the next one, too.
	last      *command
	lastName  [maxNameBytes]byte
	lastBytes int

	// Of the request under way.
	cmd       *command
	args      [][]byte
	out       *buffer.Buf
	begin     int  // of its reply in out
	exclusive bool // it is EXEC, and holds the locks of the store
}

// NewSession returns a client that has selected database 0. Close ends it.
func (s *Set) NewSession() *Session {
	s.sessions.Add(1)
	return &Session{set: s, db: s.store.DB(0), id: s.lastID.Add(1), proto: 2}
}

// Close counts the client out.
func (s *Session) Close() {
	s.endTransaction()
	s.set.sessions.Add(-1)
}

// Execute runs the request of which args[0] is the command's name and appends its reply to out. It borrows both until
// return. True: the client wants to be disconnected after this reply.
func (s *Session) Execute(args [][]byte, out *buffer.Buf) (quit bool) {
	s.args, s.out, s.begin = args, out, out.Len()
	if string(args[0]) != string(s.lastName[:s.lastBytes]) {
		s.lookup(args[0])
	}
	s.cmd = s.last
	if c := s.cmd; c != nil && c.subs == nil && !s.tx.open && accepts(c.arity, len(args)) {
		c.run(s)
	} else {
		s.executeOther()
	}
	s.args, s.out = nil, nil
	return s.quit
}

// executeOther is Execute for what is not simply run.
func (s *Session) executeOther() {
	switch run := s.resolve(); {
	case run == nil:
		s.tx.failed = s.tx.open
	case s.tx.open && !s.cmd.atOnce:
		s.queue()
	default:
		run(s)
	}
}

// lookup sets last.
func (s *Session) lookup(name []byte) {
	if s.last = s.set.lookup(name); s.last == nil {
		s.lastBytes = 0
		return
	}
	s.lastBytes = copy(s.lastName[:], name)
}

// resolve returns what runs the request. Nil: nothing does, and the reply says why.
func (s *Session) resolve() func(*Session) {
	c := s.cmd
	switch {
	case c == nil && (is(s.args[0], "post") || is(s.args[0], "host:")):
		// As Redis does: a browser that was made to send its requests here must not get to the end of their headers.
		s.quit = true
		return nil
	case c == nil:
		s.unknownCommand()
		return nil
	case !accepts(c.arity, len(s.args)) && c.name == "exec":
		s.endTransaction()
		s.raw("-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n")
		return nil
	case !accepts(c.arity, len(s.args)):
		s.wrongArity(c.name)
		return nil
	case c.subs == nil || len(s.args) == 1:
		return c.run
	}
	for i := range c.subs {
		if sub := &c.subs[i]; is(s.args[1], sub.name) {
			if !accepts(sub.arity, len(s.args)) {
				s.wrongArity(c.name + "|" + sub.name)
				return nil
			}
			return sub.run
		}
	}
	s.unknownSubcommand()
	return nil
}

// accepts reports whether an arity allows so many arguments.
func accepts(arity, n int) bool { return n == arity || arity < 0 && n >= -arity }

// lock is DB.Lock, but in EXEC, which holds all locks.
func (s *Session) lock(key []byte) *store.Shard {
	if s.exclusive {
		return s.db.Held().Shard(key)
	}
	return s.db.Lock(key)
}

func (s *Session) unlock(sh *store.Shard) {
	if !s.exclusive {
		sh.Unlock()
	}
}

func (s *Session) lockKeys(keys [][]byte, step int) store.Locked {
	if s.exclusive {
		return s.db.Held()
	}
	return s.db.LockKeys(keys, step)
}

func (s *Session) lockAll(db *store.DB) store.Locked {
	if s.exclusive {
		return db.Held()
	}
	return db.LockAll()
}

func (s *Session) unlockAll(l store.Locked) {
	if !s.exclusive {
		l.Unlock()
	}
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
