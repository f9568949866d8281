package sink

import (
	"cmp"
	"context"
	"fmt"
)

// RejectedError says which lines of a batch a Store will never take, however often it is asked: those that are too
// large for it. It has kept the others.
type RejectedError struct {
	Lines   []byte
	Records int
	Err     error // why, of the first
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("sink: %d records rejected: %v", e.Records, e.Err)
}

// Unwrap returns why the first was rejected.
func (e *RejectedError) Unwrap() error { return e.Err }

// add adds a copy of a line.
func (e *RejectedError) add(line []byte, err error) {
	e.Lines = append(e.Lines, line...)
	e.Records++
	e.Err = cmp.Or(e.Err, err)
}

// orNil returns e when it has lines.
func (e *RejectedError) orNil() error {
	if e.Records == 0 {
		return nil
	}
	return e
}

// Lazy is a Store that is opened when it is needed. It belongs to the goroutine of its Queue.
type Lazy struct {
	// Open opens the store; an error is one that can pass.
	Open  func() (Store, error)
	store Store
}

// Store opens the store, the first time, and stores b.
func (l *Lazy) Store(ctx context.Context, b *Batch) (err error) {
	if l.store == nil {
		if l.store, err = l.Open(); err != nil {
			l.store = nil
			return err
		}
	}
	return l.store.Store(ctx, b)
}

// Idle lets the store do what it has to, when it is open.
func (l *Lazy) Idle() error {
	if idler, ok := l.store.(Idler); ok {
		return idler.Idle()
	}
	return nil
}

// Close closes the store when it is open.
func (l *Lazy) Close() error {
	if l.store == nil {
		return nil
	}
	return l.store.Close()
}
