package limit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/handlers/limit"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// message is a request or a response.
type message struct {
	id    uint64
	other bool
}

// codec writes messages as "id;".
type codec struct{}

func (codec) Write(ctx *pipeline.Context, msg any) error {
	if m, ok := msg.(*message); ok {
		return ctx.Write(fmt.Sprintf("%d;", m.id))
	}
	return ctx.Write(msg)
}

// app keeps what it is asked.
type app struct{ asked []uint64 }

func (a *app) ChannelRead(_ *pipeline.Context, msg any) error {
	a.asked = append(a.asked, msg.(*message).id)
	return nil
}

// recorder is a limiter that notes what it is told.
type recorder struct {
	limit int
	told  []string
}

func (r *recorder) Limit() int { return r.limit }

func (r *recorder) Done(_, took time.Duration, inFlight int, dropped bool) {
	r.told = append(r.told, fmt.Sprintf("%v %d %v", took, inFlight, dropped))
}

func ident(msg any) (uint64, bool) {
	m, ok := msg.(*message)
	if !ok || m.other {
		return 0, false
	}
	return m.id, true
}

func newGroup(t testing.TB, cfg limit.Config) (*limit.Group, *recorder) {
	t.Helper()
	rec := &recorder{limit: 2}
	cfg.Limiter, cfg.Request, cfg.Response = rec, ident, ident
	cfg.Refuse = func(ctx *pipeline.Context, id uint64, busy *flow.Busy) error {
		return ctx.Write(fmt.Sprintf("busy %d %v;", id, busy.RetryAfter))
	}
	g, err := limit.NewGroup(cfg)
	require.NoError(t, err)
	return g, rec
}

func newServer(t testing.TB, g *limit.Group) (*pipelinetest.Channel, *app) {
	t.Helper()
	s, err := g.Server()
	require.NoError(t, err)
	a := &app{}
	return pipelinetest.New(t, codec{}, s, pipelinetest.Named("app", a)), a
}

func answer(ch *pipelinetest.Channel, ids ...uint64) {
	for _, id := range ids {
		ch.Do(func() { _ = ch.Context("app").Write(&message{id: id}) })
	}
}

func ask(ch *pipelinetest.Channel, ids ...uint64) {
	for _, id := range ids {
		ch.WriteInbound(&message{id: id})
	}
}

func TestServerRefusesInOrder(t *testing.T) {
	g, rec := newGroup(t, limit.Config{})
	ch, a := newServer(t, g)
	ask(ch, 1, 2, 3)
	ch.WriteInbound(&message{id: 9, other: true})
	assert.Equal(t, []uint64{1, 2, 9}, a.asked, "two are the limit; what is no request passes")
	assert.Empty(t, ch.OutboundString(), "the refusal waits for the answers before it")
	ch.Advance(5 * time.Millisecond)
	answer(ch, 1)
	assert.Equal(t, "1;", ch.OutboundString())
	answer(ch, 2)
	assert.Equal(t, "2;busy 3 50ms;", ch.OutboundString())
	assert.Equal(t, []string{"5ms 2 false", "5ms 1 false"}, rec.told)
	assert.Zero(t, g.InFlight())
	assert.EqualValues(t, 1, g.Refused())
	rec.limit = 0
	ask(ch, 4)
	assert.Equal(t, "busy 4 50ms;", ch.OutboundString(), "at once where nothing is before it")
}

func TestServerRefusesByIDAtOnce(t *testing.T) {
	g, rec := newGroup(t, limit.Config{ByID: true})
	ch, _ := newServer(t, g)
	ask(ch, 1, 2, 3)
	assert.Equal(t, "busy 3 50ms;", ch.OutboundString())
	ch.Advance(time.Millisecond)
	answer(ch, 2)
	ch.Advance(time.Millisecond)
	answer(ch, 1)
	assert.Equal(t, []string{"1ms 2 false", "2ms 1 false"}, rec.told)
}

func TestChannelsShareTheLimitAndGiveItBack(t *testing.T) {
	g, rec := newGroup(t, limit.Config{})
	first, _ := newServer(t, g)
	second, b := newServer(t, g)
	ask(first, 1)
	ask(second, 2, 3)
	assert.Equal(t, []uint64{2}, b.asked)
	assert.Equal(t, 2, g.InFlight())
	first.PeerReset()
	_ = first.TakeError()
	assert.Equal(t, 1, g.InFlight())
	assert.Empty(t, rec.told, "of what was given up the limiter learns nothing")
}

func TestTimedOutRequestsAreLostForTheLimiter(t *testing.T) {
	for _, byID := range []bool{false, true} {
		g, rec := newGroup(t, limit.Config{Timeout: time.Second, ByID: byID})
		ch, a := newServer(t, g)
		ask(ch, 1)
		ch.Advance(time.Second - 1)
		assert.Equal(t, 1, g.InFlight())
		ch.Advance(1)
		assert.Zero(t, g.InFlight())
		ask(ch, 2)
		ch.Advance(time.Second)
		assert.Equal(t, []string{"1s 1 true", "1s 1 true"}, rec.told, "the timer goes on, by id %v", byID)
		answer(ch, 1, 2)
		assert.Equal(t, "1;2;", ch.OutboundString(), "late answers pass")
		assert.Len(t, rec.told, 2)
		assert.Equal(t, []uint64{1, 2}, a.asked)
	}
}

func TestOutstandingRequestsAreBounded(t *testing.T) {
	for n, ok := range map[int]bool{2: true, 3: true, 4: false} {
		g, _ := newGroup(t, limit.Config{MaxOutstanding: 3})
		ch, _ := newServer(t, g)
		for id := range n {
			ask(ch, uint64(id))
		}
		if ok {
			assert.True(t, ch.Open(), "%d", n)
		} else {
			assert.ErrorIs(t, ch.TakeError(), pipeline.ErrFull)
		}
	}
}

func TestClientRefusesWrites(t *testing.T) {
	g, rec := newGroup(t, limit.Config{})
	ch := pipelinetest.New(t, codec{}, g.Client(), pipelinetest.Named("app", &app{}))
	write := func(id uint64) (err error) {
		ch.Do(func() { err = ch.Context("app").Write(&message{id: id}) })
		return err
	}
	assert.NoError(t, write(1))
	assert.NoError(t, write(2))
	var busy *flow.Busy
	require.ErrorAs(t, write(3), &busy)
	assert.True(t, busy.Shed)
	assert.Equal(t, "1;2;", ch.OutboundString())
	ch.Advance(3 * time.Millisecond)
	ask(ch, 1)
	assert.Equal(t, []string{"3ms 2 false"}, rec.told)
	assert.NoError(t, write(3))
	ask(ch, 2, 3)
	ask(ch, 4)
	assert.ErrorIs(t, ch.TakeError(), limit.ErrUnmatched)
	assert.Zero(t, g.InFlight())
}

func TestConfigIsBounded(t *testing.T) {
	for _, tc := range []struct {
		cfg limit.Config
		ok  bool
	}{
		{limit.Config{}, false},
		{limit.Config{Limiter: flow.Fixed(1)}, true},
		{limit.Config{Limiter: flow.Fixed(1), ByID: true}, false},
		{limit.Config{Limiter: flow.Fixed(1), ByID: true, Request: ident, Response: ident}, true},
		{limit.Config{Limiter: flow.Fixed(1), MaxOutstanding: flow.MaxLimit}, true},
		{limit.Config{Limiter: flow.Fixed(1), MaxOutstanding: flow.MaxLimit + 1}, false},
		{limit.Config{Limiter: flow.Fixed(1), MaxOutstanding: -1}, false},
		{limit.Config{Limiter: flow.Fixed(1), Timeout: -1}, false},
	} {
		g, err := limit.NewGroup(tc.cfg)
		if !tc.ok {
			assert.ErrorIs(t, err, limit.ErrConfig)
			continue
		}
		require.NoError(t, err)
		_, err = g.Server()
		assert.ErrorIs(t, err, limit.ErrConfig, "a server has to refuse")
	}
}

// A client has one request under way at a time.
func ExampleGroup() {
	group, err := limit.NewGroup(limit.Config{Limiter: flow.Fixed(1)})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := group.Client() // into the pipeline, behind the codec
	fmt.Println(client != nil, group.InFlight())
	// Output: true 0
}
