package codec

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// app records the frames and errors that reach it, and then does what the test says.
type app struct {
	got    []string
	errors []error
	closed int // ReadClosed came
	then   func(ctx *pipeline.Context, frame string)
	fatal  bool // errors are passed on
	paused bool // the test has paused reading: nothing may come
}

func (a *app) note(text string) {
	if a.paused {
		text = "while reading is paused: " + text
	}
	a.got = append(a.got, text)
}

func (a *app) ChannelRead(ctx *pipeline.Context, msg any) error {
	text := fmt.Sprintf("%T", msg)
	if b, ok := msg.(*buffer.Buf); ok {
		text = string(b.Bytes())
	}
	a.note(text)
	if a.then != nil {
		a.then(ctx, text)
	}
	if b, ok := msg.(*buffer.Buf); ok && text != string(b.Bytes()) {
		a.got = append(a.got, "changed while it was borrowed: "+text)
	}
	return nil
}

func (a *app) ErrorCaught(_ *pipeline.Context, err error) error {
	a.errors = append(a.errors, err)
	a.note(errorText(err))
	if a.fatal {
		return err
	}
	return nil
}

func (a *app) ChannelReadClosed(ctx *pipeline.Context) error {
	a.closed++
	ctx.FireReadClosed()
	return nil
}

func (a *app) take() []string {
	got := a.got
	a.got = nil
	return got
}

// start returns a channel with f, named framer, and an app.
func start(t testing.TB, f any, err error) (*pipelinetest.Channel, *app) {
	t.Helper()
	require.NoError(t, err)
	a := &app{}
	return pipelinetest.New(t, pipelinetest.Named("framer", f), pipelinetest.Named("app", a)), a
}

// outcome feeds in through a pipeline, in pieces whose lengths splits gives, cyclically (0 counts as 1), pauses after
// each frame whose turn in pauses is odd, and resumes after as many pieces as the rest of it says. It returns frames
// and errors in order.
func outcome(t testing.TB, s Splitter, in, splits, pauses []byte) []string {
	ch, a := start(t, NewFramer(s), nil)
	frames, wait := 0, 0
	paused := ch.Context("app")
	a.then = func(ctx *pipeline.Context, _ string) {
		if len(pauses) > 0 {
			if p := pauses[frames%len(pauses)]; p&1 != 0 {
				ctx.Pause()
				a.paused = true
				wait = int(p >> 1 & 3)
			}
		}
		frames++
	}
	resume := func() {
		a.paused = false
		ch.Do(paused.Resume)
	}
	for turn := 0; len(in) > 0; turn++ {
		n := len(in)
		if len(splits) > 0 {
			n = min(n, max(1, int(splits[turn%len(splits)])))
		}
		ch.WriteInbound(in[:n])
		in = in[n:]
		if wait--; wait < 0 && ch.Paused() {
			resume()
		}
	}
	ch.PeerClose()
	for ch.Paused() && !ch.Closed() {
		resume()
	}
	if !ch.Closed() || a.closed > 1 {
		t.Errorf("open after the end of the stream: %v, told of it %d times", ch.Open(), a.closed)
	}
	ch.Finish()
	return a.got
}

// mustSplit is for constructors whose configuration is known to be right.
func mustSplit(s Splitter, err error) Splitter {
	if err != nil {
		panic(err)
	}
	return s
}

func errorText(err error) string { return "error: " + err.Error() }

var errTest = errors.New("test")
