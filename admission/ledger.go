package admission

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/invariants"
)

// Defaults of Config.
const (
	DefaultSourceBits4     = 32
	DefaultSourceBits6     = 64 // what one customer is given (RFC 6177)
	DefaultMaxSources      = 1 << 16
	DefaultConnectionBytes = 16 << 10
	DefaultRetryAfter      = time.Second
)

// ErrConfig is the error of settings that cannot work; it is wrapped with the values.
var ErrConfig = errors.New("admission: bad configuration")

// Config configures a Ledger. A limit of zero is none.
type Config struct {
	// Loops is how many loops ask: a server's, and one more for AcceptHandoff. Zero means 1. Others may ask, too, only
	// not as fast.
	Loops int

	// Connections is how many may be open. Of these, Reserve are for High alone, and Low is refused when LowShare of
	// them, above 0 and up to 1, are in use by whomever; zero means 1.
	// (Arrivals that race may exceed the share, not the number.)
	Connections int64
	Reserve     int64
	LowShare    float64
	// PerSource is how many one source may have open. A source is an address up to SourceBits4 or SourceBits6 of its bits;
	// zero means 32 and 64. Who is not known is one source for all; Unix sockets have none. MaxSources bounds how many
	// sources are known at a time, those that have a connection: more are refused. Zero means 65,536.
	PerSource   int64
	SourceBits4 int
	SourceBits6 int
	MaxSources  int64
	// Rate is how many are admitted per second, Burst how many at once; see flow.GCRA.
	Rate  float64
	Burst int64
	// Memory is how many bytes connections may take, of which each counts for ConnectionBytes: what its channel, its
	// handlers and what they hold come to. Zero means 16 KiB each.
	Memory          int64
	ConnectionBytes int64
	// Descriptors is how many there may be, of which each connection counts for ConnectionDescriptors. Zero means 1 each.
	Descriptors           int64
	ConnectionDescriptors int64

	// Priority, when set, says how important a connection is. It is called on the loops.
	Priority func(Arrival) Priority
	// Refusal is what becomes of those that are refused: Busy, Reset or Wait. Zero means Busy where Words is set, else
	// Reset. Wait is for what comes back by itself: who has too many connections of his own is sent away by Busy or
	// Reset instead, since nobody else is to wait for him.
	Refusal Action
	// Words appends what Busy sends to dst and returns it: BusyRESP, BusyHTTP, BusyFrame, or your own. It is called on the
	// loops.
	Words func(dst []byte, reason Reason, retryAfter time.Duration) []byte
	// RetryAfter is the hint where the budget does not say. Zero means 1 s.
	RetryAfter time.Duration
	// Clock is the time since some fixed point, for Rate. It is called on the loops. Nil: since New.
	Clock func() time.Duration
}

// Ledger keeps the budgets of a Config. Its method Admit is a weir.Server's Admit. Any goroutine may call its methods.
type Ledger struct {
	cfg         Config
	connections *Quota // without the reserve; nil: no limit
	reserve     *Quota
	memory      *Quota
	descriptors *Quota
	sources     *sources // nil: no limit
	rate        *flow.GCRA
	words       [][]byte // by loop

	admitted atomic.Uint64
	refused  [reasons]atomic.Uint64
	doubled  atomic.Uint64
}

// New returns a Ledger of which nothing is taken. The error wraps ErrConfig.
func New(cfg Config) (*Ledger, error) {
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Ledger{cfg: cfg, words: make([][]byte, cfg.Loops)}
	if cfg.Connections > 0 {
		l.connections = NewQuota(cfg.Connections-cfg.Reserve, cfg.Loops)
		l.reserve = NewQuota(cfg.Reserve, 1)
	}
	if cfg.Memory > 0 {
		l.memory = NewQuota(cfg.Memory/cfg.ConnectionBytes, cfg.Loops)
	}
	if cfg.Descriptors > 0 {
		l.descriptors = NewQuota(cfg.Descriptors/cfg.ConnectionDescriptors, cfg.Loops)
	}
	if cfg.PerSource > 0 {
		l.sources = &sources{
			each: cfg.PerSource, most: cfg.MaxSources, bits4: cfg.SourceBits4, bits6: cfg.SourceBits6,
			seed: maphash.MakeSeed(),
		}
	}
	if cfg.Rate > 0 {
		var err error
		if l.rate, err = flow.NewGCRA(flow.GCRAConfig{Rate: cfg.Rate, Burst: cfg.Burst}); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return l, nil
}

func (cfg *Config) defaults() {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	if cfg.Loops == 0 {
		cfg.Loops = 1
	}
	set(&cfg.MaxSources, DefaultMaxSources)
	set(&cfg.ConnectionBytes, DefaultConnectionBytes)
	set(&cfg.ConnectionDescriptors, 1)
	if cfg.SourceBits4 == 0 {
		cfg.SourceBits4 = DefaultSourceBits4
	}
	if cfg.SourceBits6 == 0 {
		cfg.SourceBits6 = DefaultSourceBits6
	}
	if cfg.LowShare == 0 {
		cfg.LowShare = 1
	}
	if cfg.RetryAfter == 0 {
		cfg.RetryAfter = DefaultRetryAfter
	}
	if cfg.Clock == nil {
		began := time.Now()
		cfg.Clock = func() time.Duration { return time.Since(began) }
	}
	if cfg.Refusal == Serve {
		cfg.Refusal = Reset
		if cfg.Words != nil {
			cfg.Refusal = Busy
		}
	}
}

func (cfg *Config) validate() error {
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"Loops", int64(cfg.Loops)},
		{"Connections", cfg.Connections},
		{"Reserve", cfg.Reserve},
		{"PerSource", cfg.PerSource},
		{"MaxSources", cfg.MaxSources},
		{"Burst", cfg.Burst},
		{"Memory", cfg.Memory},
		{"ConnectionBytes", cfg.ConnectionBytes},
		{"Descriptors", cfg.Descriptors},
		{"ConnectionDescriptors", cfg.ConnectionDescriptors},
		{"RetryAfter", int64(cfg.RetryAfter)},
	} {
		if limit.value < 0 {
			return fmt.Errorf("%w: negative: %s %d", ErrConfig, limit.name, limit.value)
		}
	}
	switch {
	case cfg.Memory > 0 && cfg.Memory < max(cfg.ConnectionBytes, 1):
		return fmt.Errorf("%w: Memory %d for connections of %d bytes", ErrConfig, cfg.Memory, cfg.ConnectionBytes)
	case cfg.Descriptors > 0 && cfg.Descriptors < max(cfg.ConnectionDescriptors, 1):
		return fmt.Errorf("%w: Descriptors %d for connections of %d",
			ErrConfig, cfg.Descriptors, cfg.ConnectionDescriptors)
	case cfg.Reserve > cfg.Connections:
		return fmt.Errorf("%w: Reserve %d of %d Connections", ErrConfig, cfg.Reserve, cfg.Connections)
	case !(cfg.LowShare >= 0 && cfg.LowShare <= 1):
		return fmt.Errorf("%w: LowShare %v is not between 0 and 1", ErrConfig, cfg.LowShare)
	case cfg.SourceBits4 < 0 || cfg.SourceBits4 > 32 || cfg.SourceBits6 < 0 || cfg.SourceBits6 > 128:
		return fmt.Errorf("%w: SourceBits4 %d, SourceBits6 %d", ErrConfig, cfg.SourceBits4, cfg.SourceBits6)
	case !(cfg.Rate >= 0):
		return fmt.Errorf("%w: Rate %v", ErrConfig, cfg.Rate)
	case cfg.Refusal > Wait:
		return fmt.Errorf("%w: Refusal %d", ErrConfig, cfg.Refusal)
	case cfg.Refusal == Busy && cfg.Words == nil:
		return fmt.Errorf("%w: Refusal is Busy, Words is not set", ErrConfig)
	}
	return nil
}

// Ticket is what a connection has taken.
type Ticket struct {
	ledger   *Ledger
	claim    Claim
	released atomic.Bool
}

// Claim says what there is to give back, for who keeps account of it himself: it is a Ticket that costs no memory and
// does not notice when it is used twice.
type Claim struct {
	loop     int
	source   netip.Addr
	counted  bool // by source
	reserved bool // of the reserve
}

// Release gives back what the ticket stands for, once; more often is a mistake that Stats.Doubled counts, and that
// panics with -tags invariants. Any goroutine.
func (t *Ticket) Release() {
	if t.released.Swap(true) {
		t.ledger.doubled.Add(1)
		invariants.Check(false, "admission: a ticket was released twice")
		return
	}
	t.ledger.Give(t.claim)
}

// Admit decides about a connection. Who is served has a Ticket.
func (l *Ledger) Admit(a Arrival) Verdict {
	c, v := l.Take(a)
	if v.Action == Serve {
		v.Ticket = &Ticket{ledger: l, claim: c}
	}
	return v
}

// Take is Admit without a Ticket: who is served gives the Claim back, once.
func (l *Ledger) Take(a Arrival) (Claim, Verdict) {
	priority := Normal
	if l.cfg.Priority != nil {
		priority = l.cfg.Priority(a)
	}
	c := Claim{loop: a.Loop}
	reason, wait := l.take(&c, &a, priority)
	if reason == Accepted {
		l.admitted.Add(1)
		return c, Verdict{}
	}
	l.refused[reason].Add(1)
	return Claim{}, l.refusal(&a, reason, wait)
}

// Give gives back what Take has taken. Any goroutine.
func (l *Ledger) Give(c Claim) {
	if c.counted {
		l.sources.give(c.source)
	}
	l.memory.Give(c.loop, 1)
	l.descriptors.Give(c.loop, 1)
	l.giveConnection(&c)
}

// take takes from all budgets, or from none. The rate comes last: it cannot be given back.
func (l *Ledger) take(c *Claim, a *Arrival, priority Priority) (reason Reason, wait time.Duration) {
	if reason = l.takeConnection(c, priority); reason != Accepted {
		return reason, 0
	}
	if l.sources != nil && !a.Unix {
		c.source = l.sources.source(a.Peer)
		if reason = l.sources.take(c.source); reason != Accepted {
			l.giveConnection(c)
			return reason, 0
		}
		c.counted = true
	}
	switch {
	case !l.memory.Take(c.loop, 1):
		reason = Memory
	case !l.descriptors.Take(c.loop, 1):
		l.memory.Give(c.loop, 1)
		reason = Descriptors
	case l.rate != nil:
		var ok bool
		if wait, ok = l.rate.Admit(l.cfg.Clock()); !ok {
			l.memory.Give(c.loop, 1)
			l.descriptors.Give(c.loop, 1)
			reason = Rate
		}
	}
	if reason != Accepted {
		if c.counted {
			l.sources.give(c.source)
		}
		l.giveConnection(c)
	}
	return reason, wait
}

func (l *Ledger) takeConnection(c *Claim, priority Priority) Reason {
	switch {
	case l.connections == nil:
		return Accepted
	case priority == Low && float64(l.Used()) >= l.cfg.LowShare*float64(l.cfg.Connections):
		return Share
	case l.connections.Take(c.loop, 1):
		return Accepted
	case priority == High && l.reserve.Take(0, 1):
		c.reserved = true
		return Accepted
	case priority != High && l.reserve.Used() < l.cfg.Reserve:
		return Reserved
	}
	return Connections
}

func (l *Ledger) giveConnection(c *Claim) {
	if c.reserved {
		l.reserve.Give(0, 1)
	} else {
		l.connections.Give(c.loop, 1)
	}
}

// refusal is what becomes of a connection that was refused.
func (l *Ledger) refusal(a *Arrival, reason Reason, wait time.Duration) Verdict {
	v := Verdict{Action: l.cfg.Refusal, Reason: reason, RetryAfter: wait}
	if v.Action == Wait {
		switch {
		case reason == PerSource || reason == Sources:
			v.Action = Reset
			if l.cfg.Words != nil {
				v.Action = Busy
			}
		default:
			return v // a RetryAfter of zero: until something is given back
		}
	}
	if v.RetryAfter == 0 {
		v.RetryAfter = l.cfg.RetryAfter
	}
	if v.Action != Busy {
		return v
	}
	if a.Loop < 0 || a.Loop >= len(l.words) {
		v.Words = l.cfg.Words(nil, reason, v.RetryAfter)
		return v
	}
	words := &l.words[a.Loop]
	*words = l.cfg.Words((*words)[:0], reason, v.RetryAfter)
	v.Words = *words
	return v
}

// Used is how many connections are open, where Config.Connections limits them.
func (l *Ledger) Used() int64 { return l.connections.Used() + l.reserve.Used() }

// Stats are what a Ledger has counted.
type Stats struct {
	Admitted uint64
	Refused  map[Reason]uint64 // those that have occurred
	Doubled  uint64            // releases of what had been released: a mistake in a program
	// In use now; zero without a limit.
	Connections, Memory, Descriptors, Sources int64
}

// Stats returns the counters.
func (l *Ledger) Stats() Stats {
	s := Stats{
		Admitted: l.admitted.Load(), Refused: map[Reason]uint64{}, Doubled: l.doubled.Load(), Connections: l.Used(),
	}
	for r := range l.refused {
		if n := l.refused[r].Load(); n > 0 {
			s.Refused[Reason(r)] = n
		}
	}
	s.Memory = l.memory.Used() * l.cfg.ConnectionBytes
	s.Descriptors = l.descriptors.Used() * l.cfg.ConnectionDescriptors
	if l.sources != nil {
		s.Sources = l.sources.known.Load()
	}
	return s
}
