package pipelinetest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

var errTest = errors.New("test error")

// recorder notes what happens to a channel; keep makes it stay open when the peer has finished.
type recorder struct {
	log  []string
	keep bool
}

func (r *recorder) note(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

func (r *recorder) take() []string {
	log := r.log
	r.log = nil
	return log
}

func (r *recorder) ChannelActive(*pipeline.Context) error {
	r.note("active")
	return nil
}

func (r *recorder) ChannelRead(ctx *pipeline.Context, msg any) error {
	if b, ok := msg.(*buffer.Buf); ok {
		r.note("read %s", b.Bytes())
	} else {
		r.note("read %v", msg)
	}
	ctx.FireRead(msg)
	return nil
}

func (r *recorder) ChannelReadClosed(ctx *pipeline.Context) error {
	r.note("read closed")
	if !r.keep {
		ctx.FireReadClosed()
	}
	return nil
}

func (r *recorder) ChannelInactive(ctx *pipeline.Context) error {
	r.note("inactive %v", ctx.Cause())
	return nil
}

func (r *recorder) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	r.note("writable %v", ctx.Writable())
	return nil
}

// onRead and onActive are handlers made of a function; lateError fails when it is too late to close for it.
type (
	onRead    func(*pipeline.Context, any) error
	onActive  func(*pipeline.Context) error
	lateError struct{}
)

func (f onRead) ChannelRead(ctx *pipeline.Context, msg any) error { return f(ctx, msg) }
func (f onActive) ChannelActive(ctx *pipeline.Context) error      { return f(ctx) }
func (lateError) ChannelInactive(*pipeline.Context) error         { return errTest }

// fakeTB is a test whose failures a test looks at.
type fakeTB struct {
	testing.TB
	errors   []string
	cleanups []func()
}

// stopped is what Fatalf panics with: a fake cannot leave its goroutine.
type stopped struct{}

func (f *fakeTB) Helper()           {}
func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Failed() bool      { return len(f.errors) > 0 }

func (f *fakeTB) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(stopped{})
}

// run plays a test to its end and returns what it complained about.
func (f *fakeTB) run(test func(t testing.TB)) []string {
	f.guard(func() { test(f) })
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.guard(f.cleanups[i])
	}
	return f.errors
}

func (f *fakeTB) guard(fn func()) {
	defer func() {
		if v := recover(); v != nil && v != any(stopped{}) {
			panic(v)
		}
	}()
	fn()
}
