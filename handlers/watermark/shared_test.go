package watermark_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// fleet is channels on several loops that watch one level.
type fleet struct {
	shared   *watermark.Shared
	loops    []*pipelinetest.Loop
	channels []*pipelinetest.Channel
	handlers []*watermark.Handler
	read     []int // bytes, by channel
	order    []int // channels, in the order in which they read
}

// newFleet makes n channels, spread over loops. What they read is added to the level.
func newFleet(t testing.TB, cfg watermark.SharedConfig, loops, n int) *fleet {
	return newFleetOn(t, cfg, watermark.Config{}, loops, n, func(i int) int { return i % loops })
}

// newFleetOn is newFleet with a Config of the handlers and the channels where the function says.
func newFleetOn(
	t testing.TB, shared watermark.SharedConfig, cfg watermark.Config, loops, n int, on func(i int) int,
) *fleet {
	f := &fleet{shared: newShared(t, shared), read: make([]int, n)}
	for range loops {
		f.loops = append(f.loops, pipelinetest.NewLoop(t))
	}
	cfg.Shared = []*watermark.Shared{f.shared}
	for i := range n {
		h := newHandler(t, cfg)
		sink := onRead(func(_ *pipeline.Context, msg any) error {
			f.read[i] += bytesOf(msg)
			f.order = append(f.order, i)
			f.shared.Add(int64(bytesOf(msg)))
			return nil
		})
		f.handlers = append(f.handlers, h)
		f.channels = append(f.channels, f.loops[on(i)].New(pipelinetest.Named("watermark", h), sink))
	}
	return f
}

func (f *fleet) turn() {
	for _, l := range f.loops {
		l.RunTasks()
	}
}

func TestSharedConfigIsValidated(t *testing.T) {
	for _, tc := range []struct {
		cfg watermark.SharedConfig
		ok  bool
	}{
		{watermark.SharedConfig{HighBytes: 2}, true},
		{watermark.SharedConfig{HighBytes: 1}, false},
		{watermark.SharedConfig{}, false},
		{watermark.SharedConfig{HighBytes: 2, LowBytes: 2}, false},
		{watermark.SharedConfig{HighBytes: 2, LowBytes: -1}, false},
		{watermark.SharedConfig{HighBytes: 2, FloorBytes: -1}, false},
		{watermark.SharedConfig{HighBytes: 2, ResumesPerTurn: -1}, false},
	} {
		_, err := watermark.NewShared(tc.cfg)
		assert.Equal(t, tc.ok, err == nil, "%+v", tc.cfg)
		if err != nil {
			assert.ErrorIs(t, err, watermark.ErrConfig)
		}
	}
}

func TestASharedLevelTurnsAtItsMarks(t *testing.T) {
	s := newShared(t, watermark.SharedConfig{HighBytes: 100, LowBytes: 50})
	value := int64(0)
	for _, tc := range []struct {
		to   int64
		high bool
	}{{99, false}, {100, true}, {51, true}, {50, false}, {99, false}, {100, true}, {0, false}} {
		s.Add(tc.to - value)
		value = tc.to
		assert.Equal(t, tc.high, s.High(), "%d", tc.to)
		assert.Equal(t, tc.to, s.Value())
	}
	assert.EqualValues(t, 2, s.Rises())
}

func TestChannelsWaitForASharedLevelAndGoOnInTheirOrder(t *testing.T) {
	f := newFleet(t, watermark.SharedConfig{HighBytes: 1 << 20, ResumesPerTurn: 1}, 1, 5)
	f.shared.Add(1 << 20)
	for _, i := range []int{3, 0, 4, 1, 2} { // each notices at a read that was under way
		f.channels[i].WriteInbound("a")
		require.True(t, f.channels[i].Paused(), "channel %d", i)
		require.Equal(t, watermark.High, f.handlers[i].Level())
		f.channels[i].WriteInbound("b")
	}
	f.order = nil
	f.shared.Add(-f.shared.Value())
	f.turn()
	assert.Equal(t, []int{3, 0, 4, 1, 2}, f.order)
	for i, h := range f.handlers {
		assert.Equal(t, watermark.Normal, h.Level())
		assert.Equal(t, 2, f.read[i])
	}
}

// What is resumed stops where the level is high again: those behind wait on, and none is forgotten.
func TestResumingStopsWhenTheLevelRisesAgain(t *testing.T) {
	f := newFleet(t, watermark.SharedConfig{HighBytes: 1000, ResumesPerTurn: 1}, 1, 4)
	f.shared.Add(1000)
	for _, ch := range f.channels {
		ch.WriteInbound("x", make([]byte, 1000)) // the channel has it already when it pauses
	}
	f.order = nil
	for round := range f.channels {
		f.shared.Add(-f.shared.Value())
		f.turn()
		assert.Len(t, f.order, round+1, "one fills it")
	}
	assert.Equal(t, []int{0, 1, 2, 3}, f.order)
}

func TestASharedLevelOutlivesTheChannelThatCarriesItsSignal(t *testing.T) {
	f := newFleet(t, watermark.SharedConfig{HighBytes: 1000}, 1, 3)
	f.shared.Add(1000)
	for _, ch := range f.channels {
		ch.WriteInbound("x")
		require.True(t, ch.Paused())
	}
	f.channels[0].Abort(nil)
	f.channels[1].Abort(nil)
	f.shared.Add(-f.shared.Value())
	f.turn()
	assert.False(t, f.channels[2].Paused())
	f.channels[2].Abort(nil)
	assert.Zero(t, f.shared.ReservedBytes())
}

func TestAFullTaskQueueLosesNoWakeUp(t *testing.T) {
	l := pipelinetest.NewLoop(t)
	shared := newShared(t, watermark.SharedConfig{HighBytes: 1000})
	h := newHandler(t, watermark.Config{Shared: []*watermark.Shared{shared}})
	ch := l.NewConfig(pipelinetest.Config{MaxPostedTasks: 1, Manual: true}, pipelinetest.Named("watermark", h))
	l.RunTasks()
	shared.Add(1000)
	ch.WriteInbound("x")
	l.RunTasks()
	require.True(t, ch.Paused())
	require.NoError(t, ch.Context("watermark").Ref().Execute(func(*pipeline.Context) {}))
	shared.Add(-1000)
	l.RunTasks()
	assert.False(t, ch.Paused())
}

// 10,000 channels that all deliver what they may: level and reservations never exceed what the documentation says.
func TestReservationsBoundWhatArrives(t *testing.T) {
	const high, floor = 64 << 20, 2 << 10
	n := 10_000
	if !testenv.Thorough() {
		n = 1000
	}
	shared := newShared(t, watermark.SharedConfig{HighBytes: high, FloorBytes: floor})
	l := pipelinetest.NewLoop(t)
	type one struct {
		h   *watermark.Handler
		ctx *pipeline.Context
		may int
	}
	all := make([]*one, n)
	for i := range all {
		h := newHandler(t, watermark.Config{Shared: []*watermark.Shared{shared}})
		ch := l.NewConfig(pipelinetest.Config{Manual: true}, pipelinetest.Named("watermark", h))
		all[i] = &one{h: h, ctx: ch.Context("watermark")}
	}
	for _, c := range all { // all idle and armed
		c.may, _ = c.h.ReadGrant(c.ctx)
		require.GreaterOrEqual(t, c.may, floor)
	}
	assert.LessOrEqual(t, shared.ReservedBytes(), int64(high/4+n*floor))
	rng := rand.New(rand.NewPCG(1, 1))
	most := int64(0)
	for steps := 0; !shared.High(); steps++ { // nothing drains
		require.Less(t, steps, 100*n)
		c := all[rng.IntN(n)]
		shared.Add(int64(c.may))
		c.may, _ = c.h.ReadGrant(c.ctx)
		most = max(most, shared.Value())
	}
	for _, c := range all {
		shared.Add(int64(c.may))
	}
	assert.LessOrEqual(t, max(most, shared.Value()), int64(high+high/4+n*floor))
}

// Channels on several loops, a sink that drains, channels that come and go, in any order: nobody waits while the level
// is normal and nothing is left to run, and what was sent is read.
func TestSharedModel(t *testing.T) {
	seeds := uint64(1000)
	if !testenv.Thorough() {
		seeds = 100
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 7))
		loops, n := 1+rng.IntN(4), 1+rng.IntN(12)
		f := newFleet(t, watermark.SharedConfig{HighBytes: 100 + rng.Int64N(2000), ResumesPerTurn: 1 + rng.IntN(3)}, loops, n)
		sent := make([]int, n)
		for range 200 {
			i := rng.IntN(n)
			switch rng.IntN(6) {
			case 0, 1, 2:
				if f.channels[i].Open() {
					k := 1 + rng.IntN(300)
					sent[i] += k
					f.channels[i].WriteInbound(make([]byte, k))
				}
			case 3:
				if v := f.shared.Value(); v > 0 {
					f.shared.Add(-1 - rng.Int64N(v))
				}
			case 4:
				f.loops[rng.IntN(loops)].RunTasks()
			case 5:
				if rng.IntN(20) == 0 {
					f.channels[i].Abort(nil)
				}
			}
		}
		for range 10_000 { // the sink goes on, and no clock helps
			f.shared.Add(-f.shared.Value())
			f.turn()
			if f.idle(sent) {
				break
			}
		}
		for i, ch := range f.channels {
			if ch.Open() {
				require.Equal(t, sent[i], f.read[i], "seed %d: channel %d of %d waits for ever", seed, i, n)
				require.False(t, ch.Paused(), "seed %d: channel %d", seed, i)
			}
			ch.Abort(nil)
		}
		require.Zero(t, f.shared.ReservedBytes(), "seed %d", seed)
	}
}

func (f *fleet) idle(sent []int) bool {
	for i, ch := range f.channels {
		if ch.Open() && (f.read[i] != sent[i] || ch.Paused()) {
			return false
		}
	}
	return true
}

// Goroutines that drain while loops on goroutines of their own read: the last word is about the last value.
func TestSharedUnderRealGoroutines(t *testing.T) {
	const loops, perLoop, messages, size = 3, 8, 400, 100
	shared := newShared(t, watermark.SharedConfig{HighBytes: 1500, LowBytes: 300, ResumesPerTurn: 2})
	var queued, total atomic.Int64
	stop := make(chan struct{})
	var drainers, readers sync.WaitGroup
	for range 2 {
		drainers.Go(func() {
			for {
				n := queued.Load()
				if n > 0 && queued.CompareAndSwap(n, 0) {
					shared.Add(-n)
					continue
				}
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Microsecond):
				}
			}
		})
	}
	done := make([]bool, loops)
	for i := range loops {
		readers.Go(func() {
			l := pipelinetest.NewLoop(t)
			defer l.Finish()
			got := 0
			var all []*pipelinetest.Channel
			for range perLoop {
				h, err := watermark.New(watermark.Config{Shared: []*watermark.Shared{shared}})
				if !assert.NoError(t, err) {
					return
				}
				all = append(all, l.New(h, onRead(func(_ *pipeline.Context, msg any) error {
					got += bytesOf(msg)
					shared.Add(int64(bytesOf(msg)))
					queued.Add(int64(bytesOf(msg)))
					return nil
				})))
			}
			msg := make([]byte, size)
			for range messages {
				for _, ch := range all {
					ch.WriteInbound(msg)
				}
			}
			for deadline := time.Now().Add(20 * time.Second); got < perLoop*messages*size && time.Now().Before(deadline); {
				l.RunTasks()
				time.Sleep(10 * time.Microsecond)
			}
			total.Add(int64(got))
			done[i] = got == perLoop*messages*size
		})
	}
	readers.Wait()
	close(stop)
	drainers.Wait()
	assert.Equal(t, []bool{true, true, true}, done, "every loop read everything")
	assert.EqualValues(t, loops*perLoop*messages*size, total.Load())
	assert.Positive(t, shared.Rises())
}

// The level was seen high and fell before the channel stood in the queue: whoever made it fall saw nobody waiting.
func TestALevelThatFallsWhileAChannelQueuesIsNoticed(t *testing.T) {
	f := newFleet(t, watermark.SharedConfig{HighBytes: 1000}, 1, 1)
	f.channels[0].Do(f.handlers[0].WaitAtShared)
	f.channels[0].WriteInbound("x")
	assert.Equal(t, watermark.Normal, f.handlers[0].Level())
	assert.False(t, f.channels[0].Paused())
}
