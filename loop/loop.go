// Package loop runs one event loop per OS thread over a transport: completions, timers, tasks and the end of the turn.
package loop

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/transport"
)

const (
	defaultMaxTasks      = 65536
	defaultPerTurn       = 256
	defaultTurnTime      = time.Millisecond
	defaultWatchdogAfter = time.Second

	cacheLine = 64
)

// Completer is what a loop serves: a channel or a listener. All methods run on the loop. A panic that leaves one of
// them, or a timer's func, is recovered: the loop tells Panicked and goes on with what comes next.
type Completer interface {
	// Complete gets a completion of one of its operations. It borrows c and c.Buf until return; the loop releases
	// c.Buf, also after a panic.
	Complete(c *transport.Completion)
	// RunNode runs a Node whose owner it is.
	RunNode(n *Node)
	// EndTurn runs at the end of a turn in which it called Loop.Dirty, also when it was unregistered since.
	EndTurn()
	// Panicked tells that a panic left one of its callbacks (Complete, RunNode, EndTurn, Abort or a timer's func): it
	// closes. The loop has counted the panic but not logged it: the completer knows more about it. When Panicked panics
	// too, the loop calls Abort, and when that panics as well it unregisters the completer. It comes also when the
	// callback had unregistered the completer: a panic while it cleans up is its own to deal with.
	Panicked(v any, stack []byte)
	// Abort tells that the loop goes away: close at once. The loop goes on for up to a second so that the completions
	// of the close arrive. A completer that is still registered after that, or whose transport is beyond use, gets
	// Abort a second time, as its last call: no completion will come any more.
	Abort(cause error)
}

// Config configures a Loop. Open must be set, the rest works as zero.
type Config struct {
	// Open opens the transport, on the loop's thread. When raw is set, the loop has one of the process's places to wait
	// without telling Go's scheduler; see Loop.Raw.
	Open func(raw bool) (transport.Transport, error)
	// OnThreadStart, when set, runs first on the thread that Run has locked, for example to pin it to a processor. An
	// error ends Run. The thread is not reused afterwards: Run leaves its goroutine locked to it. Open, RunOnce and
	// Close do not call it, because they do not own their thread.
	OnThreadStart func() error
	// Logger gets what the loop has to say: panics without an owner, stuck turns, a loop's end. Nil means slog.Default.
	Logger *slog.Logger
	// FoundStuck, when set, is called when the Group's watchdog finds that a turn has lasted longer than WatchdogAfter,
	// once for each such turn, on a goroutine of its own. It must not wait.
	FoundStuck func()
	// Name is the loop's name in the log. Empty means "loop-" and its index.
	Name string

	// MaxTasks is how many tasks of Execute may wait; more are refused with ErrFull. Zero means 65536.
	MaxTasks int
	// TasksPerTurn is how many nodes, how many tasks and how many timers, each, one turn runs at most; the rest runs in
	// the next turns, which do not sleep. Zero means 256.
	TasksPerTurn int
	// CompletionsPerTurn is how many completions one turn dispatches at most. Zero means 256.
	CompletionsPerTurn int
	// TurnTime is after how long, each, completions, timers, nodes and tasks give way to the next kind of work; the rest
	// is done in the next turns, which do not sleep. It is looked at every 16 completions or timers and every 4 nodes
	// or tasks, and only on a transport that has a Clock() time.Duration besides its cached Now: time does not pass
	// during a turn on the others. Zero means 1 ms.
	TurnTime time.Duration
	// WatchdogAfter is how long a turn may last before the Group's watchdog logs it. Zero means 1 s; negative: off.
	WatchdogAfter time.Duration
	// Culprit, when set, names the handler at work in the stack of a loop's goroutine, for the watchdog and for
	// StuckError: pipeline.HandlerAt. Any goroutine may call it, at any time.
	Culprit func(stack []byte) string
}

// Loop is an event loop. Its methods belong to the loop's goroutine (that of Run or RunOnce), except where they say
// "any goroutine".
//
//	new ─ Run ──→ running ─ Stop, error, Goexit ─→ closed
//	    └ Open ─→ open ──── Close ──────────────→ closed
type Loop struct {
	// Set in New or NewGroup, then immutable.
	cfg    Config
	log    *slog.Logger
	index  int
	number uint64 // in the process
	group  *Group // nil: on its own
	done   chan struct{}

	_ [cacheLine]byte // what others write stays away from what the loop uses all the time

	// Any goroutine.
	state   atomic.Uint64 // asleep, woken or the stamp of the turn that runs; see wake
	nodes   nodeQueue
	tasks   taskQueue
	life    atomic.Uint32 // lifeNew …
	stop    atomic.Bool   // the loop is to end, or ends
	thread  atomic.Int64  // id of the thread that runs the loop; 0: none
	routine atomic.Int64  // id of Run's goroutine, for the watchdog
	stuck   atomic.Uint64
	refused atomic.Uint64

	stuckNow atomic.Bool // the watchdog's last word

	_ [cacheLine]byte

	// Loop goroutine only.
	tr       transport.Transport // also read by wake, ordered by state
	clock    clock               // nil: tr has none
	usable   bool                // tr is open and has not failed
	inTurn   bool
	rawPlace bool // see takeRawPlace

	slots      []slot
	freeSlot   uint32 // head of the list of free slots; 0: none
	maxSlots   int
	registered int

	timers timerHeap

	turn  turn
	end   ending
	stats Stats
}

// clock is what a transport has when time passes during a turn: the time now, from the fixed point of Now, read anew.
type clock interface {
	Clock() time.Duration
}

// The values of Loop.life.
const (
	lifeNew uint32 = iota
	lifeRunning
	lifeOpen
	lifeClosed
)

// New returns a loop that has no transport yet.
func New(cfg Config) (*Loop, error) {
	return newLoop(cfg, 0, nil)
}

func newLoop(cfg Config, index int, group *Group) (*Loop, error) {
	if cfg.Open == nil {
		return nil, fmt.Errorf("loop: Config.Open is not set")
	}
	for _, f := range []struct {
		name     string
		value    *int
		fallback int
	}{
		{"MaxTasks", &cfg.MaxTasks, defaultMaxTasks},
		{"TasksPerTurn", &cfg.TasksPerTurn, defaultPerTurn},
		{"CompletionsPerTurn", &cfg.CompletionsPerTurn, defaultPerTurn},
	} {
		if *f.value < 0 {
			return nil, fmt.Errorf("loop: Config.%s is negative: %d", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.fallback
		}
	}
	if cfg.TurnTime < 0 {
		return nil, fmt.Errorf("loop: Config.TurnTime is negative: %v", cfg.TurnTime)
	}
	if cfg.TurnTime == 0 {
		cfg.TurnTime = defaultTurnTime
	}
	if cfg.WatchdogAfter == 0 {
		cfg.WatchdogAfter = defaultWatchdogAfter
	}
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("loop-%d", index)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	l := &Loop{
		cfg:      cfg,
		log:      cfg.Logger.With("loop", cfg.Name),
		index:    index,
		number:   process.loops.Add(1),
		group:    group,
		done:     make(chan struct{}),
		slots:    make([]slot, 1), // slot 0 is the loop's own
		maxSlots: maxSlots,
	}
	l.state.Store(woken)
	l.tasks.max = cfg.MaxTasks
	l.turn.batch = make([]transport.Completion, 0, cfg.CompletionsPerTurn)
	l.turn.tasks = make([]func(), 0, cfg.TasksPerTurn)
	return l, nil
}

// Submit starts an operation. After the transport has failed or was closed it does nothing: the second Abort tells.
func (l *Loop) Submit(op transport.Op) {
	if invariants.Enabled {
		l.checkThread("Submit")
	}
	if l.usable {
		l.tr.Submit(op)
	}
}

// SendNow is Transport.SendNow; it borrows bufs until return. After the transport has failed or was closed it returns
// ErrNotNow: a Submit, and then the second Abort, tells.
func (l *Loop) SendNow(h transport.Handle, bufs []*buffer.Buf) (int, error) {
	if invariants.Enabled {
		l.checkThread("SendNow")
	}
	if !l.usable {
		return 0, transport.ErrNotNow
	}
	return l.tr.SendNow(h, bufs)
}

// StayAwake makes the next Wait only look: somebody waits for the outcome of a Send with NoWait, which need not end a
// Wait that blocks.
func (l *Loop) StayAwake() {
	if invariants.Enabled {
		l.checkThread("StayAwake")
	}
	l.turn.awake = true
}

// Dirty makes the loop call c.EndTurn once at the end of this turn. The caller remembers that it asked: each call is
// one EndTurn. What EndTurn makes dirty again gets its EndTurn in the same turn too, for a bounded number of rounds,
// then in the next turn.
func (l *Loop) Dirty(c Completer) {
	if invariants.Enabled {
		l.checkThread("Dirty")
	}
	l.turn.dirty = append(l.turn.dirty, c)
}

// CaughtUp reports whether this turn has dispatched all that the transport had: nothing waits for the next.
func (l *Loop) CaughtUp() bool {
	t := &l.turn
	return t.pos == len(t.batch) && len(t.batch) < cap(t.batch)
}

// Now is the transport's time: monotonic, read at most once per turn, virtual on a simulation. Zero before there is a
// transport.
func (l *Loop) Now() time.Duration {
	if l.tr == nil {
		return 0
	}
	return l.tr.Now()
}

// Pool is the transport's pool; nil, which is a usable pool, before there is a transport.
func (l *Loop) Pool() *buffer.Pool {
	if l.tr == nil {
		return nil
	}
	return l.tr.Pool()
}

// Transport is the loop's transport; nil before Run or Open has opened it.
func (l *Loop) Transport() transport.Transport { return l.tr }

// Raw reports whether the loop has one of the process's places to wait raw.
func (l *Loop) Raw() bool { return l.rawPlace }

// Logger is the loop's logger; it carries the loop's name. Any goroutine.
func (l *Loop) Logger() *slog.Logger { return l.log }

// Name is the loop's name. Any goroutine.
func (l *Loop) Name() string { return l.cfg.Name }

// Index is the loop's position in its Group; 0 outside. Any goroutine.
func (l *Loop) Index() int { return l.index }

// Number tells the loop from all others that the process has made, of whichever Group. Any goroutine.
func (l *Loop) Number() uint64 { return l.number }

// Done is closed when the loop is gone: Run has ended, in whatever way, or Close is over. Any goroutine.
func (l *Loop) Done() <-chan struct{} { return l.done }

// checkThread panics in invariant builds when the loop's thread is known and the caller is not on it.
func (l *Loop) checkThread(op string) {
	if want := l.thread.Load(); want != 0 && want != threadID() {
		invariants.Check(false, "loop: %s off the loop's thread", op)
	}
}
