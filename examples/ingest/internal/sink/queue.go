// Package sink takes JSON lines to where they are kept: through a queue that is bounded in bytes, in batches, each
// stored again until the store has acknowledged it.
package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirnet/weir/flow"
)

var (
	// ErrFull is returned by a Put for which there is no room. Nothing was queued.
	ErrFull = errors.New("sink: queue full")
	// ErrClosed is returned by a Put after Close.
	ErrClosed = errors.New("sink: closed")
	// ErrConfig is returned for settings that cannot work.
	ErrConfig = errors.New("sink: bad configuration")
	// ErrNotDelivered is returned by a Close whose time was over before the store had acknowledged everything.
	ErrNotDelivered = errors.New("sink: not delivered")
)

// Batch is a number of lines that are stored together.
type Batch struct {
	Number  uint64 // counts from 1
	Lines   []byte // each ends with LF
	Records int
}

// A Store keeps batches. It belongs to the goroutine of its Queue.
type Store interface {
	// Store returns nil when b is kept, as durably as the store's settings say. A *RejectedError says that b is done
	// with, and that some of its lines are not kept and never will be. After any other error, which must be one that
	// can pass, it is called again with the same batch. It borrows b until return.
	Store(ctx context.Context, b *Batch) error
	Close() error
}

// An Idler is a Store that has something to do while nothing comes, such as to flush. The goroutine of its Queue asks
// it every second in which there is nothing to store. An error is logged.
type Idler interface {
	Idle() error
}

// Config configures a Queue.
type Config struct {
	// MaxBytes is how many bytes may wait, those that are being stored included. Zero means 256 MiB.
	MaxBytes int
	// BatchBytes is the size of a batch and of the blocks that the queue is made of. Zero means 256 KiB.
	BatchBytes int
	// Rejected gets the lines that the store rejects; the queue closes it, too. Nil means that they are dropped.
	Rejected Store
	// Changed, when set, is told each change of the bytes that wait. Any goroutine may call it, also several at a time.
	Changed func(n int)
	// RetryAfter is how long to wait after a failed Store; it doubles up to RetryAtMost. Zero means 50 ms and 1 s.
	RetryAfter, RetryAtMost time.Duration
	// IdleAfter is how long nothing may come before an Idler is asked. Zero means 1 s.
	IdleAfter time.Duration
	// Logger gets a line when the store begins to fail and when it works again. Nil means slog.Default.
	Logger *slog.Logger
}

// Queue holds lines until a Store has them. Any goroutine may call its methods.
type Queue struct {
	cfg     Config
	store   Store
	backoff *flow.Backoff // the storing goroutine's
	give    context.CancelFunc
	ended   chan struct{}
	filled  chan struct{} // room for one: there may be something to store

	mu     sync.Mutex // guards what follows
	full   []*Batch   // oldest first, without the tail
	tail   *Batch
	free   [][]byte
	closed bool
	number uint64
	stats  Stats
}

// Stats are what a Queue has counted.
type Stats struct {
	QueuedBytes      int
	QueuedRecords    int
	MostQueuedBytes  int
	DeliveredBytes   uint64
	DeliveredRecords uint64
	RefusedRecords   uint64 // by Put
	RejectedRecords  uint64 // by the store: set aside, or dropped
	Retries          uint64
	Failing          error // of the last Store, nil when it succeeded
}

// NewQueue starts a queue in front of store, which it closes. Errors wrap ErrConfig.
func NewQueue(store Store, cfg Config) (*Queue, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 256 << 20
	}
	if cfg.BatchBytes == 0 {
		cfg.BatchBytes = 256 << 10
	}
	if cfg.RetryAfter == 0 {
		cfg.RetryAfter = 50 * time.Millisecond
	}
	if cfg.RetryAtMost == 0 {
		cfg.RetryAtMost = max(time.Second, cfg.RetryAfter)
	}
	cfg.IdleAfter = cmp.Or(cfg.IdleAfter, time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Changed == nil {
		cfg.Changed = func(int) {}
	}
	if cfg.BatchBytes < 1 || cfg.MaxBytes < cfg.BatchBytes {
		return nil, fmt.Errorf("%w: MaxBytes %d, BatchBytes %d", ErrConfig, cfg.MaxBytes, cfg.BatchBytes)
	}
	backoff, err := flow.NewBackoff(flow.BackoffConfig{Initial: cfg.RetryAfter, Max: cfg.RetryAtMost})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	ctx, give := context.WithCancel(context.Background())
	q := &Queue{
		cfg: cfg, store: store, backoff: backoff, give: give, ended: make(chan struct{}),
		filled: make(chan struct{}, 1),
	}
	go q.run(ctx)
	return q, nil
}

// Put queues lines, which it copies, and never waits. At the bound it returns ErrFull: whoever puts has to look at the
// level and stop reading long before.
func (q *Queue) Put(lines []byte, records int) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	if q.stats.QueuedBytes+len(lines) > q.cfg.MaxBytes {
		q.stats.RefusedRecords += uint64(records)
		queued := q.stats.QueuedBytes
		q.mu.Unlock()
		return fmt.Errorf("%w: %d bytes wait, %d more, at most %d", ErrFull, queued, len(lines), q.cfg.MaxBytes)
	}
	if q.tail != nil && len(q.tail.Lines)+len(lines) > cap(q.tail.Lines) {
		q.full = append(q.full, q.tail)
		q.tail = nil
	}
	if q.tail == nil {
		q.number++
		q.tail = &Batch{Number: q.number, Lines: q.block(len(lines))}
	}
	q.tail.Lines = append(q.tail.Lines, lines...)
	q.tail.Records += records
	q.stats.QueuedBytes += len(lines)
	q.stats.MostQueuedBytes = max(q.stats.MostQueuedBytes, q.stats.QueuedBytes)
	q.stats.QueuedRecords += records
	q.mu.Unlock()
	q.cfg.Changed(len(lines))
	select {
	case q.filled <- struct{}{}:
	default:
	}
	return nil
}

// Stats returns the counters.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}

// Close stores what is queued until ctx is done, and closes the store. ErrNotDelivered says that something is left.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	select {
	case q.filled <- struct{}{}:
	default:
	}
	select {
	case <-q.ended:
	case <-ctx.Done():
	}
	q.give()
	<-q.ended
	var err error
	if left := q.Stats(); left.QueuedRecords > 0 {
		err = fmt.Errorf("%w: %d records, %d bytes", ErrNotDelivered, left.QueuedRecords, left.QueuedBytes)
		err = errors.Join(err, left.Failing)
	}
	err = errors.Join(err, q.store.Close())
	if q.cfg.Rejected != nil {
		err = errors.Join(err, q.cfg.Rejected.Close())
	}
	return err
}

// run stores batch after batch until the queue is closed and empty or ctx is done.
func (q *Queue) run(ctx context.Context) {
	defer close(q.ended)
	for {
		b, closed := q.take()
		if b == nil {
			if closed {
				return
			}
			if !q.wait(ctx) {
				return
			}
			continue
		}
		rejected, ok := q.keep(ctx, q.store, b)
		if ok && rejected != nil {
			ok = q.setAside(ctx, b, rejected)
		}
		if !ok {
			return
		}
		q.done(b, rejected)
	}
}

// wait waits until there may be something to store, and reports whether ctx was not done before.
func (q *Queue) wait(ctx context.Context) bool {
	idle := time.NewTimer(q.cfg.IdleAfter)
	defer idle.Stop()
	select {
	case <-q.filled:
	case <-ctx.Done():
		return false
	case <-idle.C:
		for _, store := range []Store{q.store, q.cfg.Rejected} {
			if idler, ok := store.(Idler); ok {
				if err := idler.Idle(); err != nil {
					q.cfg.Logger.Error("sink fails while nothing comes", "error", err)
				}
			}
		}
	}
	return true
}

// setAside gives what the store has rejected to the other one, and reports whether ctx was not done before.
func (q *Queue) setAside(ctx context.Context, b *Batch, rejected *RejectedError) bool {
	policy := "set aside"
	if q.cfg.Rejected == nil {
		policy = "dropped"
	}
	q.cfg.Logger.Error("sink rejects records for good", "records", rejected.Records, "error", rejected.Err, "they are",
		policy)
	if q.cfg.Rejected == nil {
		return true
	}
	aside := &Batch{Number: b.Number, Lines: rejected.Lines, Records: rejected.Records}
	again, ok := q.keep(ctx, q.cfg.Rejected, aside)
	if again != nil {
		q.cfg.Logger.Error("records cannot be set aside and are dropped", "records", again.Records, "error", again.Err)
	}
	return ok
}

// keep stores b, again and again until it is done with (true) or ctx is done. It returns what was rejected.
func (q *Queue) keep(ctx context.Context, store Store, b *Batch) (*RejectedError, bool) {
	for {
		err := store.Store(ctx, b)
		var rejected *RejectedError
		if errors.As(err, &rejected) {
			err = nil
		}
		q.mu.Lock()
		before := q.stats.Failing
		q.stats.Failing = err
		if err != nil {
			q.stats.Retries++
		}
		q.mu.Unlock()
		if err == nil {
			if before != nil {
				q.backoff.Reset()
				q.cfg.Logger.Info("sink works again")
			}
			return rejected, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		if before == nil {
			q.cfg.Logger.Error("sink fails; what is queued waits", "error", err)
		}
		if !sleep(ctx, q.backoff.Next()) {
			return nil, false
		}
	}
}

// take returns the oldest batch, and whether the queue is closed.
func (q *Queue) take() (*Batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.full) > 0 {
		b := q.full[0]
		q.full[0] = nil
		q.full = q.full[1:]
		return b, q.closed
	}
	b := q.tail
	q.tail = nil
	return b, q.closed
}

// done counts b, which is stored but for what was rejected, and keeps its memory for later.
func (q *Queue) done(b *Batch, rejected *RejectedError) {
	if rejected == nil {
		rejected = &RejectedError{}
	}
	n := len(b.Lines)
	q.mu.Lock()
	q.stats.QueuedBytes -= n
	q.stats.QueuedRecords -= b.Records
	q.stats.DeliveredBytes += uint64(n - len(rejected.Lines))
	q.stats.DeliveredRecords += uint64(b.Records - rejected.Records)
	q.stats.RejectedRecords += uint64(rejected.Records)
	if cap(b.Lines) == q.cfg.BatchBytes && len(q.free)*q.cfg.BatchBytes < q.cfg.MaxBytes/8 {
		q.free = append(q.free, b.Lines[:0])
	}
	q.mu.Unlock()
	q.cfg.Changed(-n)
}

// block returns memory for a batch of n bytes or more.
func (q *Queue) block(n int) []byte {
	if n > q.cfg.BatchBytes {
		return make([]byte, 0, n)
	}
	if last := len(q.free) - 1; last >= 0 {
		b := q.free[last]
		q.free = q.free[:last]
		return b
	}
	return make([]byte, 0, q.cfg.BatchBytes)
}

// sleep waits for d and reports whether ctx was not done before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
