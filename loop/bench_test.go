package loop_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// replay is a transport that hands out the same completions in every Wait, at no cost.
type replay struct {
	*fakeTransport
	batch []transport.Completion
}

func (r *replay) Wait(dst []transport.Completion, _ time.Duration) ([]transport.Completion, error) {
	return append(dst, r.batch...), nil
}

func (r *replay) Now() time.Duration { return 0 }

func replayLoop(b *testing.B) (*loop.Loop, *replay, *silent) {
	b.Helper()
	tr := &replay{fakeTransport: newFake()}
	l, err := loop.New(loop.Config{
		Open:   func(bool) (transport.Transport, error) { return tr, nil },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = l.Open()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tr.batch = nil; _ = l.Close() })
	s := &silent{l: l}
	s.node.Init(s)
	return l, tr, s
}

func turn(b *testing.B, l *loop.Loop) {
	if _, err := l.RunOnce(0); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkTurn measures a turn of RunOnce; one of Run is cheaper by the locking of the thread and gettid.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{0, 1, 16, 64, 256} {
		b.Run(fmt.Sprintf("completions=%d", n), func(b *testing.B) {
			l, tr, s := replayLoop(b)
			reg, err := l.Register(s)
			if err != nil {
				b.Fatal(err)
			}
			for range n {
				tr.batch = append(tr.batch, transport.Completion{Token: reg.Token(tagData), N: 1, More: true})
			}
			b.ReportAllocs()
			for b.Loop() {
				turn(b, l)
			}
			if n > 0 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/completion")
			}
		})
	}
}

// BenchmarkRun measures turns inside Run: a node that posts itself keeps the loop awake.
func BenchmarkRun(b *testing.B) {
	tr := &replay{fakeTransport: newFake()}
	l, err := loop.New(loop.Config{
		Open:   func(bool) (transport.Transport, error) { return tr, nil },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	p := &probe{name: "p", l: l, log: &journal{}}
	r := &repost{l: l, left: b.N}
	p.node.Init(r)
	l.Post(&p.node)
	b.ReportAllocs()
	if err := l.Run(); err != nil {
		b.Fatal(err)
	}
}

// repost posts its node again and again, then stops the loop.
type repost struct {
	silent
	l    *loop.Loop
	left int
}

func (r *repost) RunNode(n *loop.Node) {
	if r.left--; r.left <= 0 {
		r.l.Stop()
		return
	}
	r.l.Post(n)
}

// BenchmarkPost measures posting and running nodes, 64 a turn.
func BenchmarkPost(b *testing.B) {
	l, _, _ := replayLoop(b)
	sink := &repost{l: l}
	nodes := make([]loop.Node, 64)
	for i := range nodes {
		nodes[i].Init(drop{sink})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Post(&nodes[i%64])
		if i%64 == 63 {
			turn(b, l)
		}
	}
}

// drop is a Completer that does nothing with its nodes.
type drop struct{ *repost }

func (drop) RunNode(*loop.Node) {}

// BenchmarkExecute measures queueing and running tasks, 64 a turn.
func BenchmarkExecute(b *testing.B) {
	l, _, _ := replayLoop(b)
	task := func() {}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := l.Execute(task); err != nil {
			b.Fatal(err)
		}
		if i%64 == 63 {
			turn(b, l)
		}
	}
}

// BenchmarkTimerReset measures setting one of many timers later, as an idle timeout does with each message.
func BenchmarkTimerReset(b *testing.B) {
	for _, n := range []int{1, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("timers=%d", n), func(b *testing.B) {
			l, _, s := replayLoop(b)
			timers := make([]loop.Timer, n)
			for i := range timers {
				timers[i].Init(l, s, func() {})
				timers[i].Reset(time.Hour + time.Duration(i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				timers[i*7919%n].Reset(2*time.Hour + time.Duration(i))
			}
		})
	}
}
