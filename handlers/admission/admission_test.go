package admission_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	budgets "github.com/weirnet/weir/admission"
	"github.com/weirnet/weir/handlers/admission"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func ledger(t testing.TB, cfg budgets.Config) *budgets.Ledger {
	l, err := budgets.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// busy is an answer with what was asked in it.
func busy(_ *pipeline.Context, request any, v budgets.Verdict) any {
	return fmt.Sprintf("busy %v (%v);", request, v.Reason)
}

// ask is a request, as a decoder would make it.
type ask string

// worker is an application that answers when the test wants it.
type worker struct {
	ctx  *pipeline.Context
	todo []string
}

func (w *worker) ChannelRead(ctx *pipeline.Context, msg any) error {
	w.ctx = ctx
	w.todo = append(w.todo, string(msg.(ask)))
	return nil
}

// answer writes responses to the oldest n.
func (w *worker) answer(t *testing.T, n int) {
	for range n {
		require.NoError(t, w.ctx.Write("done "+w.todo[0]+";"))
		w.todo = w.todo[1:]
	}
}

func open(t *testing.T, cfg admission.Config) (*pipelinetest.Channel, *worker) {
	h, err := admission.New(cfg)
	require.NoError(t, err)
	w := &worker{}
	return pipelinetest.New(t, h, w), w
}

// Two may be in flight. The others are refused, in the order in which they were asked.
func TestRefusalsKeepTheOrderOfTheRequests(t *testing.T) {
	l := ledger(t, budgets.Config{Connections: 2})
	ch, w := open(t, admission.Config{Ledger: l, Busy: busy})
	ch.WriteInbound(ask("a"), ask("b"), ask("c"))
	require.Equal(t, []string{"a", "b"}, w.todo)
	require.Empty(t, ch.OutboundString())
	ch.Do(func() { w.answer(t, 1) })
	require.Equal(t, "done a;", ch.OutboundString())
	ch.WriteInbound(ask("d"), ask("e"))
	ch.Do(func() { w.answer(t, 1) })
	require.Equal(t, "done b;busy c (connections);", ch.OutboundString())
	ch.Do(func() { w.answer(t, 1) })
	require.Equal(t, "done d;busy e (connections);", ch.OutboundString())
	require.Zero(t, l.Used())
	ch.WriteInbound(ask("f"))
	ch.Do(func() { w.answer(t, 1) })
	require.Equal(t, "done f;", ch.OutboundString())
}

func TestUnorderedRefusalsComeAtOnce(t *testing.T) {
	ch, w := open(t, admission.Config{Ledger: ledger(t, budgets.Config{Connections: 1}), Busy: busy, Unordered: true})
	ch.WriteInbound(ask("a"), ask("b"))
	require.Equal(t, "busy b (connections);", ch.OutboundString())
	ch.Do(func() { w.answer(t, 1) })
	ch.WriteInbound(ask("c"))
	require.Equal(t, "done a;", ch.OutboundString())
	require.Equal(t, []string{"c"}, w.todo)
}

func TestOnlyRequestsAndResponsesCount(t *testing.T) {
	l := ledger(t, budgets.Config{Connections: 1})
	ch, w := open(t, admission.Config{
		Ledger: l, Busy: busy,
		Request:  func(msg any) bool { return msg != ask("ping") },
		Response: func(msg any) bool { return !strings.HasPrefix(msg.(string), "part") },
	})
	ch.WriteInbound(ask("ping"), ask("a"), ask("ping"))
	require.Equal(t, []string{"ping", "a", "ping"}, w.todo)
	ch.Do(func() { require.NoError(t, w.ctx.Write("part;")) })
	require.EqualValues(t, 1, l.Used())
	ch.Do(func() { require.NoError(t, w.ctx.Write("last;")) })
	require.Zero(t, l.Used())
	ch.Do(func() { require.NoError(t, w.ctx.Write("nobody has asked;")) })
	require.Zero(t, l.Used())
}

// What is in flight when a connection ends, however, is given back.
func TestWhatIsInFlightEndsWithTheConnection(t *testing.T) {
	for name, end := range map[string]func(ch *pipelinetest.Channel){
		"close":   (*pipelinetest.Channel).Close,
		"abort":   func(ch *pipelinetest.Channel) { ch.Abort(nil) },
		"reset":   (*pipelinetest.Channel).PeerReset,
		"removed": func(ch *pipelinetest.Channel) { ch.Do(func() { _, _ = ch.Pipeline().Remove("admission") }) },
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger(t, budgets.Config{Connections: 3, PerSource: 3})
			h, err := admission.New(admission.Config{Ledger: l, Busy: busy})
			require.NoError(t, err)
			ch := pipelinetest.NewConfig(t, pipelinetest.Config{RemoteAddr: netip.MustParseAddrPort("192.0.2.1:1")})
			require.NoError(t, ch.Pipeline().AddLast("admission", h))
			require.NoError(t, ch.Pipeline().AddLast("", &worker{}))
			ch.WriteInbound(ask("a"), ask("b"), ask("c"), ask("d"))
			require.EqualValues(t, 3, l.Used())
			end(ch)
			ch.RunTasks()
			assert.Zero(t, l.Used())
			assert.Zero(t, l.Stats().Sources)
		})
	}
}

// A peer that asks on and on without an answer stops being read.
func TestReadingPausesWhileTooManyWaitForAResponse(t *testing.T) {
	const most = 4
	ch, w := open(t, admission.Config{
		Ledger: ledger(t, budgets.Config{Connections: 2}), Busy: busy, MaxWaiting: most,
	})
	ch.WriteInbound(ask("a"), ask("b"), ask("c"))
	require.False(t, ch.Paused(), "one below")
	ch.WriteInbound(ask("d"))
	require.True(t, ch.Paused())
	ch.Do(func() { w.answer(t, 1) })
	require.True(t, ch.Paused(), "three are left")
	ch.Do(func() { w.answer(t, 1) })
	require.False(t, ch.Paused())
	require.Equal(t, "done a;done b;busy c (connections);busy d (connections);", ch.OutboundString())
}

func TestBadSettingsOfTheHandlerAreNamed(t *testing.T) {
	for want, cfg := range map[string]admission.Config{
		"Ledger is not set": {},
		"MaxWaiting -1":     {Ledger: ledger(t, budgets.Config{}), MaxWaiting: -1},
	} {
		_, err := admission.New(cfg)
		require.ErrorIs(t, err, admission.ErrConfig)
		assert.ErrorContains(t, err, want)
	}
}

func BenchmarkRequest(b *testing.B) {
	l := ledger(b, budgets.Config{Connections: 1000, PerSource: 1000, Rate: 1e9})
	a := budgets.Arrival{Peer: netip.MustParseAddrPort("192.0.2.1:1")}
	b.ReportAllocs()
	for b.Loop() {
		c, _ := l.Take(a)
		l.Give(c)
	}
}

func Example() {
	ledger, err := budgets.New(budgets.Config{Connections: 1}) // one request at a time, on all connections
	if err != nil {
		panic(err)
	}
	h, err := admission.New(admission.Config{
		Ledger: ledger,
		Busy: func(_ *pipeline.Context, request any, v budgets.Verdict) any {
			return fmt.Sprintf("%v: come back in %v", request, v.RetryAfter)
		},
		Unordered: true,
	})
	if err != nil {
		panic(err)
	}
	var t testing.T
	ch := pipelinetest.New(&t, h) // behind it stand a server's own handlers
	ch.WriteInbound(ask("first"), ask("second"))
	fmt.Println(ch.OutboundString())
	// Output: second: come back in 1s
}
