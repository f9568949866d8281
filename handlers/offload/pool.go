package offload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/panjf2000/ants/v2"
)

var (
	// ErrPoolClosed is what done gets for messages that came too late for their pool.
	ErrPoolClosed = errors.New("offload: pool closed")
	// ErrConfig is what constructors return for a configuration that makes no sense.
	ErrConfig = errors.New("offload: bad configuration")
)

// Defaults of PoolConfig.
const (
	DefaultMaxQueued      = 4096
	DefaultMaxQueuedBytes = 64 << 20
)

// PoolConfig configures a Pool. The zero value works.
type PoolConfig struct {
	// Workers is how many works run at a time. Zero means four per processor (GOMAXPROCS), since works that are worth
	// to be offloaded mostly wait.
	Workers int
	// MaxQueued is how many messages may wait for a worker. At it, channels wait instead, with reading paused; at half
	// of it they go on. Zero means 4096.
	MaxQueued int
	// MaxQueuedBytes is the same for their bytes, as detaching tells them. A message that is larger has its turn when
	// nothing else waits. Zero means 64 MiB.
	MaxQueuedBytes int
	// Go, when set, runs fn somewhere else, once, in place of the pool's own goroutines: on another pool of the
	// application's, or where a simulation wants it. fn is a worker: it runs works until none is left. Go must not run it
	// before it returns, and it must not lose it.
	Go func(fn func())
	// Context is what the contexts of works are made from, for values and for ending them all. Nil means
	// context.Background.
	Context context.Context
}

// PoolStats is what a Pool counts.
type PoolStats struct {
	Queued      int    // messages that wait for a worker now
	QueuedBytes int    // and their bytes
	Running     int    // works that run now
	Waiting     int    // channels that wait for room now, with reading paused
	Done        uint64 // works that have ended, panics included
	Panics      uint64 // works that panicked or called runtime.Goexit
	Abandoned   uint64 // messages that were dropped before their work began, because their channel had closed
	Rejected    uint64 // messages that were not taken because the pool was closed; a full pool rejects none
}

// Pool is a number of goroutines and a bounded queue before them, shared by many channels on any loops. Any goroutine
// may call its methods.
type Pool struct {
	cfg    PoolConfig // set in NewPool, then immutable
	ctx    context.Context
	cancel context.CancelCauseFunc
	ants   *ants.Pool // nil with PoolConfig.Go
	work   func()     // p.worker, made once

	mu sync.Mutex
	// guarded by mu
	queue   ring[entry]
	waiting waiters // channels with a message that is not in queue
	full    bool    // since the queue was full, until it has fallen to half
	workers int     // that run or are about to
	closed  bool
	idle    chan struct{} // closed when closed and nothing is left; nil until Close
	stats   PoolStats     // QueuedBytes and the totals
}

// entry is a message in the queue.
type entry struct {
	job   job
	bytes int
}

// job is the work of one message.
type job interface {
	// begin returns false when the channel is gone and nothing is to be done.
	begin() bool
	// run calls the work. It does not panic.
	run() (ok bool)
	// fail ends it without work.
	fail(err error)
}

// NewPool returns a pool whose workers come with the work and go when there has been none for a second. Two goroutines
// that see to that end with Close. (Two more, of a pool that nobody uses, are started by package ants when it is
// imported.)
func NewPool(cfg PoolConfig) (*Pool, error) {
	if cfg.Workers < 0 || cfg.MaxQueued < 0 || cfg.MaxQueuedBytes < 0 {
		return nil, fmt.Errorf("%w: pool of %d workers, queue of %d messages, %d bytes",
			ErrConfig, cfg.Workers, cfg.MaxQueued, cfg.MaxQueuedBytes)
	}
	if cfg.Workers == 0 {
		cfg.Workers = 4 * runtime.GOMAXPROCS(0)
	}
	if cfg.MaxQueued == 0 {
		cfg.MaxQueued = DefaultMaxQueued
	}
	if cfg.MaxQueuedBytes == 0 {
		cfg.MaxQueuedBytes = DefaultMaxQueuedBytes
	}
	if cfg.Context == nil {
		cfg.Context = context.Background()
	}
	p := &Pool{cfg: cfg}
	if cfg.Go == nil {
		// The pool itself counts its workers: ants, asked to, would make Submit block or fail while a worker is on its
		// way back.
		goroutines, err := ants.NewPool(-1, ants.WithNonblocking(true))
		if err != nil {
			return nil, fmt.Errorf("offload: %w", err)
		}
		p.ants = goroutines
	}
	p.ctx, p.cancel = context.WithCancelCause(cfg.Context)
	p.work = p.worker
	return p, nil
}

// Stats returns what is counted, as of one moment.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Queued = p.queue.len()
	s.Waiting = p.waiting.n
	return s
}

// Close ends the pool. Messages that come later get ErrPoolClosed, those that are in the queue or wait for room are
// worked. It returns nil when all are, and the error of ctx when ctx is done before: then what has not begun gets
// ErrPoolClosed, the contexts of running works are cancelled, and Close does not wait for them. It must not be called
// on a loop, which it would block.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	if p.idle == nil {
		p.idle = make(chan struct{})
		p.checkIdle()
	}
	idle := p.idle
	p.mu.Unlock()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
		p.drop()
	}
	p.cancel(ErrPoolClosed)
	if p.ants != nil {
		p.ants.Release()
	}
	return err
}

// drop gives what has not begun ErrPoolClosed.
func (p *Pool) drop() {
	var woken []*link
	for {
		p.mu.Lock()
		if p.queue.len() == 0 {
			p.admit(&woken)
		}
		if p.queue.len() == 0 {
			p.checkIdle()
			p.mu.Unlock()
			break
		}
		e := p.queue.pop()
		p.stats.QueuedBytes -= e.bytes
		p.stats.Rejected++
		p.mu.Unlock()
		if e.job.begin() {
			e.job.fail(ErrPoolClosed)
		}
	}
	for _, l := range woken {
		l.signal.Raise()
	}
}

// offer takes j, or makes l wait for room with it. False: l waits, and l.granted and a signal will come. Loop goroutine
// of l.
func (p *Pool) offer(l *link, j job, bytes int) bool {
	p.mu.Lock()
	if p.closed {
		p.stats.Rejected++
		p.mu.Unlock()
		if j.begin() {
			j.fail(ErrPoolClosed)
		}
		return true
	}
	if !p.full && !p.fits(bytes) {
		p.full = true
	}
	if p.full {
		l.job, l.bytes = j, bytes
		p.waiting.push(l)
		p.mu.Unlock()
		return false
	}
	p.push(j, bytes)
	start := p.workers < p.cfg.Workers
	if start {
		p.workers++
	}
	p.mu.Unlock()
	if start {
		p.start()
	}
	return true
}

// withdraw takes l out of the queue of channels that wait. Loop goroutine of l.
func (p *Pool) withdraw(l *link) {
	p.mu.Lock()
	if p.waiting.remove(l) {
		l.job = nil
		p.stats.Abandoned++
		p.checkIdle()
	}
	p.mu.Unlock()
}

// fits reports whether a message of so many bytes may be queued. The caller holds mu.
func (p *Pool) fits(bytes int) bool {
	n := p.queue.len()
	return n < p.cfg.MaxQueued && (n == 0 || p.stats.QueuedBytes+bytes <= p.cfg.MaxQueuedBytes)
}

// push queues j. The caller holds mu.
func (p *Pool) push(j job, bytes int) {
	p.queue.push(entry{j, bytes})
	p.stats.QueuedBytes += bytes
}

func (p *Pool) start() {
	if p.cfg.Go != nil {
		p.cfg.Go(p.work)
		return
	}
	if p.ants.Submit(p.work) != nil {
		go p.work() // it was closed meanwhile, and what was taken is worked all the same
	}
}

// worker works until nothing is left to do.
func (p *Pool) worker() {
	over := false
	defer func() {
		if !over { // a work called runtime.Goexit, which takes this goroutine away
			p.start()
		}
	}()
	var woken []*link
	for {
		e, start, ok := p.next(&woken)
		for range start {
			p.start()
		}
		for i, l := range woken {
			l.signal.Raise()
			woken[i] = nil
		}
		woken = woken[:0]
		if !ok {
			over = true
			return
		}
		p.runOne(e.job)
	}
}

// next returns the next message to work on and how many workers to start; without one, the worker counts as gone. It
// appends the channels that have to be told of room to woken: the lock is not held meanwhile, since loops wait for it.
func (p *Pool) next(woken *[]*link) (e entry, start int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue.len() == 0 {
		p.workers--
		p.checkIdle()
		return entry{}, 0, false
	}
	e = p.queue.pop()
	p.stats.QueuedBytes -= e.bytes
	p.stats.Running++
	if p.full && p.queue.len() <= p.cfg.MaxQueued/2 && p.stats.QueuedBytes <= p.cfg.MaxQueuedBytes/2 {
		p.admit(woken)
		start = min(len(*woken), p.cfg.Workers-p.workers)
		p.workers += start
	}
	return e, start, true
}

// admit queues the messages of channels that wait, as far as there is room. The caller holds mu and wakes them.
func (p *Pool) admit(woken *[]*link) {
	for p.waiting.first != nil {
		l := p.waiting.first
		if !p.fits(l.bytes) {
			return
		}
		p.waiting.remove(l)
		p.push(l.job, l.bytes)
		l.job = nil
		l.granted.Store(true)
		*woken = append(*woken, l)
	}
	p.full = false
}

// runOne runs j and counts it.
func (p *Pool) runOne(j job) {
	if !j.begin() {
		p.mu.Lock()
		p.stats.Running--
		p.stats.Abandoned++
		p.mu.Unlock()
		return
	}
	ok := false
	defer func() {
		p.mu.Lock()
		p.stats.Running--
		p.stats.Done++
		if !ok {
			p.stats.Panics++
		}
		p.mu.Unlock()
	}()
	ok = j.run()
}

// checkIdle tells Close when nothing is left. The caller holds mu.
func (p *Pool) checkIdle() {
	if p.idle != nil && p.workers == 0 && p.queue.len() == 0 && p.waiting.n == 0 {
		select {
		case <-p.idle:
		default:
			close(p.idle)
		}
	}
}
