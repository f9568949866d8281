package overload_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/handlers/overload"
)

const interval = 100 * time.Millisecond

// server is a controller with one risk that the test sets, or that is the load that it admits.
type server struct {
	c    *overload.Controller
	risk float64
	now  time.Duration
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{now: time.Hour}
	var err error
	s.c, err = overload.New(overload.Config{Signals: []overload.Signal{
		{Name: "none", Read: func(time.Duration) float64 { return math.NaN() }},
		{Name: "load", Read: func(time.Duration) float64 { return s.risk }},
	}})
	require.NoError(t, err)
	return s
}

// ask lets an interval pass in which n requests of each class come, of as many users, and returns how many are
// admitted.
func (s *server) ask(n int) (admitted [overload.DefaultClasses]int) {
	for i := range n {
		for k := range admitted {
			if s.c.Admit(s.now, flow.Class(k), uint64(i)) {
				admitted[k]++
			}
		}
		s.now += interval / time.Duration(n)
	}
	return admitted
}

func TestControllerRefusesTheLeastImportantFirst(t *testing.T) {
	s := newServer(t)
	assert.Equal(t, [4]int{1000, 1000, 1000, 1000}, s.ask(1000))
	s.risk = 1
	assert.Equal(t, [4]int{1000, 1000, 1000, 1000}, s.ask(1000), "at the bound")
	s.risk = 2
	got := s.ask(1000) // reacts in one interval
	assert.Equal(t, [4]int{1000, 1000, 0, 0}, got, "half of four classes is two")
	s.risk = 1.25
	got = s.ask(1000)
	assert.Equal(t, 1000, got[0])
	assert.InDelta(t, 600, got[1], 80, "a part of the users of the class at the level")
	assert.Equal(t, "load", s.c.Stats().Signal)
	assert.InDelta(t, 1.25, s.c.Stats().Risk, 1e-9)
	assert.True(t, s.c.Admit(s.now, flow.Exempt, 1))
	assert.False(t, s.c.Admit(s.now, 200, 1), "unknown classes are the last one")
	busy := s.c.Busy(s.now, 3, 1, 0, 0.5)
	require.NotNil(t, busy)
	assert.Equal(t, flow.Busy{RetryAfter: interval, Shed: true, Class: 3}, *busy)
	assert.Nil(t, s.c.Busy(s.now, 0, 1, 0, 0.5))
}

func TestControllerRefusesTheSameUsers(t *testing.T) {
	s := newServer(t)
	s.ask(1000)
	s.risk = 8.0 / 7 // half of the last class
	s.ask(1000)
	s.risk = 0.99
	first := map[uint64]bool{}
	for user := range uint64(500) {
		first[user] = s.c.Admit(s.now-1, 3, user)
	}
	for user, admitted := range first {
		assert.Equal(t, admitted, s.c.Admit(s.now-1, 3, user))
	}
}

func TestControllerAlwaysLeavesOneCohortAndRecoversWithinASecond(t *testing.T) {
	s := newServer(t)
	s.ask(1000)
	s.risk = math.Inf(1)
	for range 20 {
		s.ask(1000)
	}
	got := s.ask(1000)
	assert.Positive(t, got[0], "else nothing tells when it is over")
	assert.Zero(t, got[1]+got[2]+got[3])
	s.risk = 0
	for range 9 {
		s.ask(1000)
	}
	assert.Equal(t, [4]int{1000, 1000, 1000, 1000}, s.ask(1000))
	s.risk = math.Inf(1)
	s.ask(10)
	s.risk, s.now = 0, s.now+time.Hour // nobody asked in that time
	assert.Equal(t, [4]int{10, 10, 10, 10}, s.ask(10))
}

// A loop of load and controller comes to rest where the load that is admitted is what can be served.
func TestControllerSettles(t *testing.T) {
	for _, times := range []float64{1.5, 5, 10} {
		s := newServer(t)
		total, served := 0.0, 0.0
		for i := range 60 {
			admitted := 0
			for _, n := range s.ask(400) {
				admitted += n
			}
			load := float64(admitted) / 1600 * times
			s.risk = load
			if i >= 10 {
				total++
				served += min(load, 1)
			}
		}
		assert.Greater(t, served/total, 0.93, "%v times", times)
	}
}

func TestForecastNeverRefuses(t *testing.T) {
	for name, forecast := range map[string]func(s *server, i int) error{
		"half":        func(s *server, _ int) error { return s.c.Forecast(s.now, 0.5, time.Second) },
		"five times":  func(s *server, _ int) error { return s.c.Forecast(s.now, 5, time.Second) },
		"the most":    func(s *server, _ int) error { return s.c.Forecast(s.now, overload.MaxForecast, time.Minute) },
		"oscillating": func(s *server, i int) error { return s.c.Forecast(s.now, []float64{0.1, 10}[i%2], time.Second) },
		"stale": func(s *server, i int) error {
			if i > 0 {
				return nil
			}
			return s.c.Forecast(s.now, 5, time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, plain := newServer(t), newServer(t)
			s.risk, plain.risk = 0.94, 0.94
			good, without := 0.0, 0.0
			for i := range 200 {
				require.NoError(t, forecast(s, i))
				for server, sum := range map[*server]*float64{s: &good, plain: &without} {
					admitted := 0
					for _, n := range server.ask(100) {
						admitted += n
					}
					if i < 20 {
						assert.Equal(t, 400, admitted, "refused without a load")
						continue
					}
					server.risk = float64(admitted) / 400 * 5 // five times the capacity
					*sum += min(server.risk, 1)
				}
			}
			assert.GreaterOrEqual(t, good, 0.95*without)
		})
	}
	s := newServer(t)
	for _, times := range []float64{
		0, overload.MinForecast - 0.01, overload.MaxForecast + 0.01, -1, math.NaN(), math.Inf(1),
	} {
		require.NoError(t, s.c.Forecast(0, 2, time.Minute))
		assert.InDelta(t, 2, s.c.Expected(time.Minute-1), 0)
		assert.InDelta(t, 1, s.c.Expected(time.Minute), 0, "it expires")
		assert.ErrorIs(t, s.c.Forecast(0, times, time.Second), overload.ErrConfig)
		assert.InDelta(t, 1, s.c.Expected(0), 0, "an error ends the one before")
	}
	assert.NoError(t, s.c.Forecast(0, 2, overload.MaxForecastAge))
	assert.Error(t, s.c.Forecast(0, 2, overload.MaxForecastAge+1))
	assert.Error(t, s.c.Forecast(0, 2, 0))
}

func TestControllerIsForManyLoops(t *testing.T) {
	s := newServer(t)
	s.risk = 2
	var loops sync.WaitGroup
	for loop := range 4 {
		loops.Go(func() {
			for i := range 10_000 {
				s.c.Admit(time.Duration(i)*time.Millisecond, flow.Class(i%4), uint64(loop*i))
				s.c.Stats()
			}
		})
	}
	loops.Wait()
	sum := uint64(0)
	for _, n := range s.c.Stats().Asked {
		sum += n
	}
	assert.EqualValues(t, 40_000, sum)
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.c.Admit(time.Hour, 1, 1) }))
}

func TestControllerConfigIsBounded(t *testing.T) {
	read := func(time.Duration) float64 { return 0 }
	signals := func(n int) (s []overload.Signal) {
		for i := range n {
			s = append(s, overload.Signal{Name: fmt.Sprint(i), Read: read})
		}
		return s
	}
	for _, tc := range []struct {
		cfg overload.Config
		ok  bool
	}{
		{overload.Config{}, true},
		{overload.Config{Signals: signals(overload.MaxSignals)}, true},
		{overload.Config{Signals: signals(overload.MaxSignals + 1)}, false},
		{overload.Config{Signals: []overload.Signal{{Read: read}}}, false},
		{overload.Config{Signals: []overload.Signal{{Name: "x"}}}, false},
		{overload.Config{Classes: -1}, false},
		{overload.Config{Classes: 1}, true},
		{overload.Config{Classes: overload.MaxClasses}, true},
		{overload.Config{Classes: overload.MaxClasses + 1}, false},
		{overload.Config{Interval: 2, Recover: 1}, false},
		{overload.Config{Interval: 1, Recover: 1}, true},
	} {
		_, err := overload.New(tc.cfg)
		if tc.ok {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, err, overload.ErrConfig)
		}
	}
}

func TestSignals(t *testing.T) {
	used := 0.0
	share := overload.Share("memory", 100, 0.5, func() float64 { return used })
	for of, want := range map[float64]float64{0: -1, 50: 0, 75: 0.5, 100: 1, 150: 2} {
		used = of
		assert.InDelta(t, want, share.Read(0), 1e-9)
	}
	wait := overload.Wait("lag", time.Second, func() time.Duration { return 2 * time.Second })
	assert.InDelta(t, 2, wait.Read(0), 1e-9)
	gc := overload.GC(0.25)
	assert.Equal(t, "gc", gc.Name)
	assert.GreaterOrEqual(t, gc.Read(0), 0.0)
}
