package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weirnet/weir/loop"
)

const (
	lagEvery  = 10 * time.Millisecond
	lagAtMost = int64(time.Minute / time.Microsecond)
)

// lag measures how long a task waits until its loop runs it. Any goroutine may call its methods.
type lag struct {
	done chan struct{}
	once sync.Once

	mu    sync.Mutex // guards what follows, in microseconds
	all   *hdrhistogram.Histogram
	piece *hdrhistogram.Histogram // since the last snapshot
}

func newLag() *lag {
	return &lag{
		done: make(chan struct{}), all: hdrhistogram.New(1, lagAtMost, 3),
		piece: hdrhistogram.New(1, lagAtMost, 3),
	}
}

// run asks each loop again and again until stop. group returns nil until the loops have been started.
func (l *lag) run(group func() *loop.Group) {
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		loops := group()
		for i := 0; loops != nil && i < loops.Len(); i++ {
			asked := time.Now()
			_ = loops.Loop(i).Execute(func() { l.record(time.Since(asked)) }) // a full queue shows in Stats.Refused
		}
	}
}

func (l *lag) stop() { l.once.Do(func() { close(l.done) }) }

func (l *lag) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.all.RecordValue(min(d.Microseconds(), lagAtMost))
	_ = l.piece.RecordValue(min(d.Microseconds(), lagAtMost))
}

// p99 returns that of all and that since the last call.
func (l *lag) p99() (all, piece time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = time.Duration(l.all.ValueAtQuantile(99)) * time.Microsecond
	piece = time.Duration(l.piece.ValueAtQuantile(99)) * time.Microsecond
	l.piece.Reset()
	return all, piece
}
