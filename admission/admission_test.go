package admission_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/admission"
)

func newLedger(t testing.TB, cfg admission.Config) *admission.Ledger {
	t.Helper()
	l, err := admission.New(cfg)
	require.NoError(t, err)
	return l
}

func from(address string) admission.Arrival {
	return admission.Arrival{Peer: netip.MustParseAddrPort(address)}
}

// Each budget admits as many as it has, refuses the next with its own name, and admits again what was given back.
func TestEachBudgetHasItsLimit(t *testing.T) {
	const limit = 5
	for _, tc := range []struct {
		cfg    admission.Config
		reason admission.Reason
	}{
		{admission.Config{Connections: limit}, admission.Connections},
		{admission.Config{Connections: limit + 2, Reserve: 2}, admission.Reserved},
		{admission.Config{PerSource: limit}, admission.PerSource},
		{admission.Config{Memory: limit * 1000, ConnectionBytes: 1000}, admission.Memory},
		{admission.Config{Memory: limit*1000 + 999, ConnectionBytes: 1000}, admission.Memory},
		{admission.Config{Descriptors: 2 * limit, ConnectionDescriptors: 2}, admission.Descriptors},
	} {
		for _, loops := range []int{1, 4} {
			t.Run(fmt.Sprint(tc.reason, loops), func(t *testing.T) {
				tc.cfg.Loops = loops
				l := newLedger(t, tc.cfg)
				var tickets []*admission.Ticket
				for i := range limit {
					a := from("192.0.2.1:1")
					a.Loop = i
					v := l.Admit(a)
					require.Equal(t, admission.Serve, v.Action, "%d", i)
					tickets = append(tickets, v.Ticket)
				}
				v := l.Admit(from("192.0.2.1:1"))
				require.Equal(t, admission.Verdict{
					Action: admission.Reset, Reason: tc.reason, RetryAfter: admission.DefaultRetryAfter,
				}, v)
				tickets[0].Release()
				again := l.Admit(from("192.0.2.1:1"))
				require.Equal(t, admission.Serve, again.Action)
				require.Equal(t, admission.Reset, l.Admit(from("192.0.2.1:1")).Action)
				for _, ticket := range append(tickets[1:], again.Ticket) {
					ticket.Release()
				}
				s := l.Stats()
				assert.Equal(t, admission.Stats{
					Admitted: limit + 1, Refused: map[admission.Reason]uint64{tc.reason: 2},
				}, s, "everything is given back")
			})
		}
	}
}

func TestTheRateAdmitsABurstAndSaysWhenToComeAgain(t *testing.T) {
	now := time.Duration(0)
	l := newLedger(t, admission.Config{
		Rate: 10, Burst: 3, Connections: 100, Refusal: admission.Wait, Clock: func() time.Duration { return now },
	})
	for range 3 {
		require.Equal(t, admission.Serve, l.Admit(admission.Arrival{}).Action)
	}
	v := l.Admit(admission.Arrival{})
	require.Equal(t, admission.Verdict{
		Action: admission.Wait, Reason: admission.Rate, RetryAfter: 100 * time.Millisecond,
	}, v)
	require.EqualValues(t, 3, l.Used(), "who is refused keeps nothing")
	now = v.RetryAfter
	require.Equal(t, admission.Serve, l.Admit(admission.Arrival{}).Action)
}

func TestPrioritiesDecideAboutTheRest(t *testing.T) {
	priority := admission.Normal
	l := newLedger(t, admission.Config{
		Connections: 10, Reserve: 2, LowShare: 0.5,
		Priority: func(admission.Arrival) admission.Priority { return priority },
	})
	admit := func(p admission.Priority) admission.Reason {
		priority = p
		return l.Admit(admission.Arrival{}).Reason
	}
	for range 5 {
		require.Equal(t, admission.Accepted, admit(admission.Low))
	}
	require.Equal(t, admission.Share, admit(admission.Low))
	for range 3 {
		require.Equal(t, admission.Accepted, admit(admission.Normal))
	}
	require.Equal(t, admission.Reserved, admit(admission.Normal))
	for range 2 {
		require.Equal(t, admission.Accepted, admit(admission.High))
	}
	require.Equal(t, admission.Connections, admit(admission.High))
	require.Equal(t, admission.Connections, admit(admission.Normal))
	require.EqualValues(t, 10, l.Used())
}

// A source is a prefix; who is not known is one source, and Unix sockets are none.
func TestSourcesArePrefixes(t *testing.T) {
	unix := admission.Arrival{Unix: true}
	for _, tc := range []struct {
		name          string
		first, second admission.Arrival
		same          bool
	}{
		{"the same IPv4 address", from("192.0.2.1:1"), from("192.0.2.1:2"), true},
		{"neighbours", from("192.0.2.1:1"), from("192.0.2.2:1"), false},
		{"mapped", from("192.0.2.1:1"), from("[::ffff:192.0.2.1]:1"), true},
		{"the same IPv6 prefix", from("[2001:db8::1]:1"), from("[2001:db8::ffff:0:0:1]:1"), true},
		{"neighbours of IPv6", from("[2001:db8:0:1::1]:1"), from("[2001:db8:0:2::1]:1"), false},
		{"zones", from("[fe80::1%eth0]:1"), from("[fe80::1%eth1]:1"), true},
		{"unknown", admission.Arrival{}, admission.Arrival{}, true},
		{"Unix", unix, unix, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t, admission.Config{PerSource: 1})
			require.Equal(t, admission.Accepted, l.Admit(tc.first).Reason)
			want := admission.Accepted
			if tc.same {
				want = admission.PerSource
			}
			require.Equal(t, want, l.Admit(tc.second).Reason)
		})
	}
	l := newLedger(t, admission.Config{PerSource: 1, SourceBits4: 24})
	require.Equal(t, admission.Accepted, l.Admit(from("192.0.2.1:1")).Reason)
	require.Equal(t, admission.PerSource, l.Admit(from("192.0.2.2:1")).Reason)
}

// The table of sources has a limit, and no memory of those that have gone.
func TestNoMoreSourcesAreKnownThanMayBe(t *testing.T) {
	const most = 300
	l := newLedger(t, admission.Config{PerSource: 2, MaxSources: most})
	source := func(i int) admission.Arrival { return from(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256)) }
	var tickets []*admission.Ticket
	for i := range most {
		v := l.Admit(source(i))
		require.Equal(t, admission.Serve, v.Action)
		tickets = append(tickets, v.Ticket)
	}
	require.Equal(t, admission.Sources, l.Admit(source(most)).Reason)
	require.Equal(t, admission.Serve, l.Admit(source(0)).Action, "who is known is not concerned")
	tickets[1].Release()
	require.Equal(t, admission.Serve, l.Admit(source(most)).Action)
	require.EqualValues(t, most, l.Stats().Sources)
	tickets[2].Release()
	for range 2 { // who comes again is as good as new
		require.Equal(t, admission.Serve, l.Admit(source(2)).Action)
	}
	require.Equal(t, admission.PerSource, l.Admit(source(2)).Reason)
}

func TestNobodyWaitsForASourceThatHasTooMany(t *testing.T) {
	l := newLedger(t, admission.Config{PerSource: 1, Connections: 2, Refusal: admission.Wait})
	require.Equal(t, admission.Serve, l.Admit(from("192.0.2.1:1")).Action)
	require.Equal(t, admission.Reset, l.Admit(from("192.0.2.1:1")).Action)
	require.Equal(t, admission.Serve, l.Admit(from("192.0.2.2:1")).Action)
	v := l.Admit(from("192.0.2.3:1"))
	require.Equal(t, admission.Verdict{Action: admission.Wait, Reason: admission.Connections}, v)
	l = newLedger(t, admission.Config{PerSource: 1, Refusal: admission.Wait, Words: admission.BusyRESP})
	l.Admit(from("192.0.2.1:1"))
	require.Equal(t, admission.Busy, l.Admit(from("192.0.2.1:1")).Action)
}

// Random arrivals, refusals and ends beside a model that has one number for each budget.
func TestALedgerDoesWhatItsModelDoes(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		pick := func(n int) int64 { return int64(rng.IntN(n)) }
		cfg := admission.Config{
			Loops: 1 + rng.IntN(4), Connections: pick(60), PerSource: pick(10), Memory: pick(50), ConnectionBytes: 1,
			Descriptors: pick(50),
		}
		if cfg.Connections > 0 {
			cfg.Reserve = pick(int(cfg.Connections))
		}
		l := newLedger(t, cfg)
		type held struct {
			ticket *admission.Ticket
			source int
		}
		var open []held
		bySource := map[int]int64{}
		for range 300 {
			if rng.IntN(3) == 0 && len(open) > 0 {
				i := rng.IntN(len(open))
				open[i].ticket.Release()
				bySource[open[i].source]--
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
				continue
			}
			source := rng.IntN(5)
			a := from(fmt.Sprintf("10.0.0.%d:1", source))
			a.Loop = rng.IntN(5)
			n := int64(len(open))
			fits := (cfg.Connections == 0 || n < cfg.Connections-cfg.Reserve) &&
				(cfg.PerSource == 0 || bySource[source] < cfg.PerSource) &&
				(cfg.Memory == 0 || n < cfg.Memory) && (cfg.Descriptors == 0 || n < cfg.Descriptors)
			v := l.Admit(a)
			require.Equal(t, fits, v.Action == admission.Serve, "seed %d: %v with %d open, %+v", seed, v.Reason, n, cfg)
			if fits {
				open = append(open, held{v.Ticket, source})
				bySource[source]++
			}
		}
		for _, h := range open {
			h.ticket.Release()
		}
		s := l.Stats()
		require.Zero(t, s.Connections+s.Memory+s.Descriptors+s.Sources, "seed %d: %+v", seed, s)
	}
}

// 64 goroutines on eight loops race for the last places. There are never more than there may be, and in the end all are
// given back.
func TestARaceAtTheLimitNeverExceedsIt(t *testing.T) {
	for _, loops := range []int{8, 1} {
		race(t, loops)
	}
}

func race(t *testing.T, loops int) {
	const limit = 40
	l := newLedger(t, admission.Config{
		Loops: loops, Connections: limit + 5, Reserve: 5, PerSource: 30, Memory: 1 << 30,
	})
	var open, most, admitted atomic.Int64
	var all sync.WaitGroup
	for g := range 64 {
		all.Go(func() {
			a := from(fmt.Sprintf("10.0.0.%d:1", g%4))
			a.Loop = g % 8
			for range 2000 {
				v := l.Admit(a)
				if v.Ticket == nil {
					continue
				}
				admitted.Add(1)
				n := open.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				open.Add(-1)
				v.Ticket.Release()
			}
		})
	}
	all.Wait()
	assert.LessOrEqual(t, most.Load(), int64(limit))
	assert.Positive(t, admitted.Load())
	s := l.Stats()
	assert.Zero(t, s.Connections+s.Memory+s.Sources, "%+v", s)
	for range limit { // no place was lost
		v := l.Admit(admission.Arrival{Unix: true})
		require.Equal(t, admission.Serve, v.Action)
	}
	require.Equal(t, admission.Reserved, l.Admit(admission.Arrival{Unix: true}).Reason)
}

func TestRefusingAllocatesNothing(t *testing.T) {
	l := newLedger(t, admission.Config{Connections: 1, PerSource: 1, Rate: 1e6, Words: admission.BusyRESP})
	a := from("192.0.2.1:1")
	require.Equal(t, admission.Serve, l.Admit(a).Action)
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.Admit(a) }))
}

func TestBusyAnswersAreThoseOfTheirProtocols(t *testing.T) {
	now := time.Duration(0)
	l := newLedger(t, admission.Config{
		Rate: 1, Words: admission.BusyRESP, Clock: func() time.Duration { return now },
	})
	require.Equal(t, admission.Serve, l.Admit(admission.Arrival{}).Action)
	now = 880 * time.Millisecond
	v := l.Admit(admission.Arrival{})
	require.Equal(t, admission.Busy, v.Action)
	assert.Equal(t, "-BUSY rate, retry after 120 ms\r\n", string(v.Words))
	v = l.Admit(admission.Arrival{Loop: 3})
	assert.Equal(t, "-BUSY rate, retry after 120 ms\r\n", string(v.Words), "of a loop that it does not know")

	for wait, want := range map[time.Duration]string{1: "1", time.Second: "1", time.Second + 1: "2"} {
		response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(
			admission.BusyHTTP(nil, admission.Memory, wait))), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
		assert.Equal(t, want, response.Header.Get("Retry-After"))
		assert.True(t, response.Close)
		var body bytes.Buffer
		_, err = body.ReadFrom(response.Body)
		require.NoError(t, err)
		assert.Contains(t, body.String(), "BUSY memory, retry after ")
	}
	assert.Equal(t, "x\x00\x00\x00\x22BUSY connections, retry after 1 ms",
		string(admission.BusyFrame([]byte("x"), admission.Connections, 0)))
}

func TestBadSettingsAreNamed(t *testing.T) {
	for want, cfg := range map[string]admission.Config{
		"Connections -1":                     {Connections: -1},
		"Reserve 2 of 1 Connections":         {Connections: 1, Reserve: 2},
		"LowShare 1.5":                       {LowShare: 1.5},
		"SourceBits4 33":                     {SourceBits4: 33},
		"SourceBits6 129":                    {SourceBits6: 129},
		"Rate -1":                            {Rate: -1},
		"Burst -1":                           {Rate: 1, Burst: -1},
		"Refusal 4":                          {Refusal: 4},
		"Words is not set":                   {Refusal: admission.Busy},
		"Memory 10 for connections of 16384": {Memory: 10},
		"Descriptors 1 for connections of 2": {Descriptors: 1, ConnectionDescriptors: 2},
		"negative: Loops -1":                 {Loops: -1},
		"negative: RetryAfter -1":            {RetryAfter: -1},
	} {
		_, err := admission.New(cfg)
		require.ErrorIs(t, err, admission.ErrConfig, want)
		assert.ErrorContains(t, err, want)
	}
}
