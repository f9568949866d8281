package offload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

var errWork = errors.New("work failed")

// How the model lets a work end.
const (
	workReturns = iota
	workFails
	workPanics
	workExits
	workEnds
)

// model is a pool with a few channels on one loop, and a seed that decides who does what next: messages come, works end
// in any order and in any way, others pause reading, channels and the pool are closed, done submits messages itself.
// After each step the model waits until nothing moves any more and compares what it sees with what is promised.
type model struct {
	t     *testing.T
	rng   *rand.Rand
	loop  *pipelinetest.Loop
	pool  *offload.Pool
	cfg   offload.PoolConfig
	exact bool // it waits after each step
	chs   []*modelChannel

	poolClosed bool
	lastID     uint64
	ended      map[uint64]int // how the model let works end
	extra      int            // messages that done may still submit

	mu sync.Mutex
	// guarded by mu
	running []*modelWork
	begun   map[uint64]bool
}

type modelWork struct {
	id  uint64
	ctx context.Context
	end chan int
}

// modelChannel is a channel and what is known of it.
type modelChannel struct {
	m       *model
	ch      *pipelinetest.Channel
	limit   int // MaxInFlight
	polite  bool
	anyhow  bool // results come as they are ready
	held    bool // the sink pauses reading
	done    int  // of accepted
	sent    int  // messages by the peer
	passed  int  // messages that came by the removed handler
	added   int  // messages submitted by done
	removed bool
	shut    bool
	left    bool // the peer has finished

	accepted []uint64
	open     []uint64 // those of them that are not done
}

func newModel(t *testing.T, seed uint64) *model {
	rng := rand.New(rand.NewPCG(seed, 11))
	m := &model{
		t: t, rng: rng, loop: pipelinetest.NewLoop(t), exact: rng.IntN(4) > 0, ended: map[uint64]int{}, extra: 20,
		begun: map[uint64]bool{},
	}
	m.cfg = offload.PoolConfig{Workers: 1 + rng.IntN(4), MaxQueued: 1 + rng.IntN(5)}
	if rng.IntN(3) == 0 {
		m.cfg.MaxQueuedBytes = 1 + rng.IntN(40)
	}
	pool, err := offload.NewPool(m.cfg)
	require.NoError(t, err)
	m.pool = pool
	for range 1 + rng.IntN(3) {
		m.open()
	}
	return m
}

func (m *model) open() {
	c := &modelChannel{m: m, limit: 1 + m.rng.IntN(5), polite: m.rng.IntN(2) == 0, anyhow: m.rng.IntN(3) == 0}
	h, err := offload.New(m.pool, offload.Config[*buffer.Buf, uint64, uint64]{
		Detach: c.detach, Work: m.work, Done: c.finish, MaxInFlight: c.limit, Unordered: c.anyhow,
	})
	require.NoError(m.t, err)
	var split any = rude{}
	if c.polite {
		split, err = codec.NewFixedLength(codec.FixedLengthConfig{Bytes: 8})
		require.NoError(m.t, err)
	}
	m.chs = append(m.chs, c)
	c.ch = m.loop.New(pipelinetest.Named("split", split), pipelinetest.Named("offload", h),
		pipelinetest.Named("sink", c))
}

// rude is a decoder that does not ask whether reading is paused.
type rude struct{}

func (rude) ChannelRead(ctx *pipeline.Context, msg any) error {
	for p := msg.(*buffer.Buf).Bytes(); len(p) > 0; p = p[8:] {
		fire(ctx, binary.BigEndian.Uint64(p))
	}
	return nil
}

// fire emits a message.
func fire(ctx *pipeline.Context, id uint64) {
	b := ctx.Pool().Get(8)
	defer b.Release()
	b.Append(binary.BigEndian.AppendUint64(nil, id))
	ctx.FireRead(b)
}

func (c *modelChannel) detach(b *buffer.Buf) (id uint64, bytes int) {
	id = binary.BigEndian.Uint64(b.Bytes())
	c.accepted = append(c.accepted, id)
	c.open = append(c.open, id)
	return id, int(id % 16)
}

// work runs on a goroutine of the pool until the model lets it end.
func (m *model) work(ctx context.Context, id uint64) (uint64, error) {
	w := &modelWork{id, ctx, make(chan int)}
	m.mu.Lock()
	m.running = append(m.running, w)
	m.begun[id] = true
	m.mu.Unlock()
	switch <-w.end {
	case workFails:
		return id, errWork
	case workPanics:
		panic(errWork)
	case workExits:
		runtime.Goexit()
	}
	return id, nil
}

// finish is the handler's Done.
func (c *modelChannel) finish(ctx *pipeline.Context, r uint64, err error) error {
	may := c.open
	// What is given up comes in the order of the messages in any case.
	if givenUp := c.gone(ctx, err); len(may) > 0 && (!c.anyhow || givenUp) {
		may = may[:1]
	}
	i := slices.IndexFunc(may, func(id uint64) bool { return c.fits(ctx, id, r, err) })
	if i < 0 {
		c.m.t.Fatalf("of the messages %d none is done with %d, %v; ended are %v", c.open, r, err, c.m.ended)
	}
	c.open = slices.Delete(c.open, i, i+1)
	c.done++
	return c.reenter(ctx)
}

// gone reports whether err says that the channel or the handler has gone, and it has.
func (c *modelChannel) gone(ctx *pipeline.Context, err error) bool {
	return errors.Is(err, pipeline.ErrClosed) && !ctx.Open() || errors.Is(err, offload.ErrRemoved) && c.removed
}

// fits reports whether this may be the result of a message.
func (c *modelChannel) fits(ctx *pipeline.Context, id, r uint64, err error) bool {
	m := c.m
	how, ended := m.ended[id]
	var panicked *offload.PanicError
	gone := c.gone(ctx, err)
	switch {
	case !ended:
		m.mu.Lock()
		defer m.mu.Unlock()
		return gone || errors.Is(err, offload.ErrPoolClosed) && m.poolClosed && !m.begun[id]
	case gone && !m.exact:
		return true // it may not have got so far
	case how == workReturns:
		return r == id && err == nil
	case how == workFails:
		return r == id && errors.Is(err, errWork) && !errors.As(err, &panicked)
	case how == workPanics:
		return errors.As(err, &panicked) && errors.Is(err, errWork)
	}
	return errors.Is(err, offload.ErrGoexit)
}

// reenter is what done does besides.
func (c *modelChannel) reenter(ctx *pipeline.Context) error {
	switch m := c.m; m.rng.IntN(40) {
	case 0, 1, 2, 3:
		for n := 1 + m.rng.IntN(3); n > 0 && m.extra > 0; n-- {
			m.extra--
			m.lastID++
			before := len(c.accepted) + c.passed
			fire(ctx.Pipeline().Context("split"), m.lastID)
			c.added += len(c.accepted) + c.passed - before
		}
	case 4:
		return ctx.Close()
	case 5:
		ctx.Abort(nil)
	case 6:
		return c.remove()
	case 7:
		return errWork // for the sink
	case 8, 9, 10:
		if ctx.Open() {
			return ctx.Write("result")
		}
	}
	return nil
}

func (c *modelChannel) remove() error {
	if c.removed || !c.ch.Open() {
		return nil
	}
	c.removed = true
	_, err := c.ch.Pipeline().Remove("offload")
	return err
}

// The sink: what it is told comes after everything that was accepted before is done.

func (c *modelChannel) ChannelRead(*pipeline.Context, any) error { c.passed++; return nil }

func (c *modelChannel) ErrorCaught(_ *pipeline.Context, err error) error {
	if errors.Is(err, errWork) || errors.Is(err, codec.ErrTruncated) {
		return nil
	}
	return err
}

func (c *modelChannel) ChannelReadClosed(ctx *pipeline.Context) error {
	c.allDone("the end of the stream")
	ctx.FireReadClosed()
	return nil
}

func (c *modelChannel) ChannelShutdown(ctx *pipeline.Context) error {
	c.allDone("the shutdown")
	ctx.FireShutdown()
	return nil
}

func (c *modelChannel) ChannelInactive(*pipeline.Context) error {
	c.allDone("the end")
	return nil
}

func (c *modelChannel) allDone(what string) {
	if c.done != len(c.accepted) {
		c.m.t.Fatalf("%s overtakes %d of %d messages", what, len(c.accepted)-c.done, len(c.accepted))
	}
}

// step does one thing.
func (m *model) step() {
	c := m.chs[m.rng.IntN(len(m.chs))]
	switch k := m.rng.IntN(100); {
	case k < 35:
		c.receive()
	case k < 80:
		m.endOne()
	case k < 85:
		c.hold(true)
	case k < 92:
		c.hold(false)
	case k < 94:
		c.left = true
		c.ch.PeerClose()
	case k == 94:
		c.left = true
		c.ch.PeerReset()
	case k == 95:
		c.ch.Close()
	case k == 96:
		c.ch.Abort(nil)
	case k == 97:
		c.shut = true
		c.ch.Shutdown()
	case k == 98:
		c.ch.Do(func() { require.NoError(m.t, c.remove()) })
	case m.rng.IntN(4) == 0:
		m.closePool()
	}
}

// receive lets the peer send some messages, to a decoder that may be in pieces.
func (c *modelChannel) receive() {
	if c.shut || !c.ch.Open() || c.left {
		return
	}
	var p []byte
	for range 1 + c.m.rng.IntN(5) {
		c.m.lastID++
		c.sent++
		p = binary.BigEndian.AppendUint64(p, c.m.lastID)
	}
	if n := 1 + c.m.rng.IntN(len(p)); c.polite {
		c.ch.WriteInboundSplit(p, n)
	} else {
		c.ch.WriteInbound(p)
	}
}

func (c *modelChannel) hold(on bool) {
	if c.held == on || !c.ch.Open() {
		return
	}
	c.held = on
	c.ch.Do(func() {
		if ctx := c.ch.Context("sink"); on {
			ctx.Pause()
		} else {
			ctx.Resume()
		}
	})
}

func (m *model) closePool() {
	m.poolClosed = true
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.pool.Close(gone)
}

// endOne lets one of the works end. It returns false when there is none.
func (m *model) endOne() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.running) == 0 {
		return false
	}
	i := m.rng.IntN(len(m.running))
	w := m.running[i]
	m.running = append(m.running[:i], m.running[i+1:]...)
	how := workReturns
	if m.rng.IntN(4) == 0 {
		how = m.rng.IntN(workEnds)
	}
	m.ended[w.id] = how
	w.end <- how
	return true
}

func (m *model) works() (ws []*modelWork) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(ws, m.running...)
}

// rest waits until nothing moves: each work that the model let end has been counted, each worker has one or there is
// none to have, and the loop has nothing to do.
func (m *model) rest() {
	m.t.Helper()
	for deadline := time.Now().Add(patience); ; runtime.Gosched() {
		m.loop.RunTasks()
		s := m.pool.Stats()
		if len(m.works()) == s.Running && int(s.Done) == len(m.ended) &&
			(s.Queued == 0 || s.Running == m.cfg.Workers) &&
			m.loop.RunTasks() == 0 && m.pool.Stats() == s {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("it does not come to rest: %+v of %+v, %d ended", s, m.cfg, len(m.ended))
		}
	}
}

// check compares what is seen at rest with what is promised.
func (m *model) check() {
	s := m.pool.Stats()
	bytes := m.cfg.MaxQueuedBytes
	require.True(m.t, s.Running <= m.cfg.Workers && s.Queued <= m.cfg.MaxQueued, "%+v of %+v", s, m.cfg)
	require.True(m.t, bytes == 0 || s.QueuedBytes <= bytes || s.Queued == 1, "%+v of %+v", s, m.cfg)
	full := s.Queued > m.cfg.MaxQueued/2 || bytes > 0 && s.Queued > 0
	require.True(m.t, s.Waiting == 0 || full && s.Running == m.cfg.Workers,
		"nobody waits in vain: %+v of %+v", s, m.cfg)
	works, live := m.works(), 0
	for i, c := range m.chs {
		flight := len(c.accepted) - c.done
		if flight > 0 {
			live++
		}
		run := 0
		for _, w := range works {
			for _, id := range c.accepted {
				if w.id == id {
					run++
					if c.removed || c.ch.Closed() {
						require.Error(m.t, w.ctx.Err(), "channel %d: the context of a work that nobody waits for", i)
					} else if !m.poolClosed {
						require.NoError(m.t, w.ctx.Err(), "channel %d", i)
					}
				}
			}
		}
		if c.removed || c.ch.Closed() {
			require.Zero(m.t, flight, "channel %d: all is answered", i)
			continue
		}
		require.LessOrEqual(m.t, run, c.limit, "channel %d: messages in flight", i)
		for n, id := range c.open {
			_, ended := m.ended[id]
			require.False(m.t, ended && (n == 0 || c.anyhow), "channel %d: a result is there and not told", i)
		}
		if !c.ch.Open() {
			continue
		}
		if flight >= c.limit {
			require.True(m.t, c.ch.Paused(), "channel %d reads with %d in flight, limit %d", i, flight, c.limit)
		}
		if flight <= c.limit/2 && s.Waiting == 0 && !c.held && !c.shut {
			require.False(m.t, c.ch.Paused(),
				"channel %d does not read with %d in flight, limit %d", i, flight, c.limit)
		}
	}
	require.LessOrEqual(m.t, s.Waiting, live, "no channel waits that has nothing to wait for")
}

// finishAll lets everything end and checks that nothing was lost.
func (m *model) finishAll() {
	for _, c := range m.chs {
		c.hold(false)
	}
	for m.rest(); ; m.rest() {
		if m.check(); !m.endOne() {
			break
		}
	}
	for i, c := range m.chs {
		require.Equal(m.t, len(c.accepted), c.done, "channel %d", i)
		if c.ch.Open() {
			require.False(m.t, c.ch.Paused(), "channel %d", i)
			require.Zero(m.t, c.ch.Stashed(), "channel %d", i)
			require.Equal(m.t, c.sent+c.added, len(c.accepted)+c.passed, "channel %d: messages that came", i)
		}
		require.False(m.t, c.shut && c.ch.Open() || c.left && c.ch.Open(), "channel %d was to end", i)
	}
	s := m.pool.Stats()
	require.Zero(m.t, s.Queued+s.QueuedBytes+s.Running+s.Waiting, "%+v", s)
	require.EqualValues(m.t, len(m.ended), s.Done)
	m.loop.Finish()
	require.NoError(m.t, m.pool.Close(context.Background()))
}

// To replay a seed: -run 'TestEveryMessageIsDoneOnceInOrder/seed=17$'.
func TestEveryMessageIsDoneOnceInOrder(t *testing.T) {
	seeds := uint64(4000)
	if !testenv.Thorough() {
		seeds = 300
	}
	for seed := range seeds {
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			m := newModel(t, seed)
			for range 20 + m.rng.IntN(60) {
				if m.step(); m.exact || m.rng.IntN(3) == 0 {
					m.rest()
					m.check()
				}
			}
			m.finishAll()
		})
		if !ok {
			break
		}
	}
}
