package offload_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/pipeline"
)

// patience bounds every wait.
const patience = 30 * time.Second

// number is a message of a decoder that knows how to detach itself.
type number struct{ n int }

func (m *number) Detach() (*number, int) { return &number{m.n}, 8 }

// gates lets a test decide when each work ends.
type gates struct {
	mu     sync.Mutex
	open   map[int]chan error
	begun  []int
	causes map[int]error
}

func newGates() *gates { return &gates{open: map[int]chan error{}, causes: map[int]error{}} }

func (g *gates) gate(n int) chan error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[n] == nil {
		g.open[n] = make(chan error, 1)
	}
	return g.open[n]
}

func (g *gates) work(ctx context.Context, m *number) (int, error) {
	gate := g.gate(m.n)
	g.mu.Lock()
	g.begun = append(g.begun, m.n)
	g.mu.Unlock()
	select {
	case err := <-gate:
		return m.n * 10, err
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.causes[m.n] = context.Cause(ctx)
		return 0, ctx.Err()
	}
}

func (g *gates) let(ns ...int) {
	for _, n := range ns {
		g.gate(n) <- nil
	}
}

func (g *gates) started() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]int(nil), g.begun...)
}

func (g *gates) cause(n int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.causes[n]
}

// results is what done was called with.
type results struct{ got []string }

func (r *results) done(_ *pipeline.Context, v int, err error) error {
	if err != nil {
		r.got = append(r.got, err.Error())
	} else {
		r.got = append(r.got, strconv.Itoa(v))
	}
	return nil
}

func newPool(t testing.TB, cfg offload.PoolConfig) *offload.Pool {
	p, err := offload.NewPool(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, p.Close(ctx))
	})
	return p
}

// handler returns a handler of numbers.
func handler(
	t testing.TB, p *offload.Pool, g *gates, r *results, maxInFlight int,
) *offload.Handler[*number, *number, int] {
	h, err := offload.New(p, offload.Config[*number, *number, int]{
		Detach: (*number).Detach, Work: g.work, Done: r.done, MaxInFlight: maxInFlight,
	})
	require.NoError(t, err)
	return h
}

// send delivers numbers as one decoder would that never asks whether reading is on.
type source struct{ m number }

func (s *source) ChannelRead(ctx *pipeline.Context, msg any) error {
	for _, n := range msg.([]int) {
		s.m.n = n // the same message each time, as decoders do
		ctx.FireRead(&s.m)
	}
	return nil
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	servertest.Eventually(t, ok, "%s", what)
}

func numbers(from, to int) (ns []int) {
	for n := from; n <= to; n++ {
		ns = append(ns, n)
	}
	return ns
}

func texts(ns ...int) (out []string) {
	for _, n := range ns {
		out = append(out, fmt.Sprint(10*n))
	}
	return out
}
