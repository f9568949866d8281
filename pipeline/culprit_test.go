package pipeline_test

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

type panicker struct{ pass }

func (*panicker) ChannelRead(*pipeline.Context, any) error { panic("boom") }

type valuePanicker struct{ pass }

func (valuePanicker) ChannelRead(*pipeline.Context, any) error {
	var numbers []int
	for i := range 3 {
		numbers[i] = i // a run-time error
	}
	return nil
}

type genericPanicker[T any] struct{ pass }

func (*genericPanicker[T]) ChannelRead(*pipeline.Context, any) error { return fail("generic") }

func fail(why string) error { panic(why) }

type inner struct{}

func (*inner) ChannelRead(*pipeline.Context, any) error { return fail("promoted") }

type outer struct{ *inner }

type closurePanicker struct{ pass }

func (*closurePanicker) ChannelRead(*pipeline.Context, any) error {
	return func() error { return fail("closure") }()
}

type deferPanicker struct{ pass }

func (*deferPanicker) ChannelRead(*pipeline.Context, any) error {
	defer func() { panic("second") }()
	panic("first")
}

type (
	addedPanicker  struct{ pass }
	writePanicker  struct{ pass }
	errorPanicker  struct{ pass }
	leavePanicker  struct{ pass }
	bufferPanicker struct{ pass }
)

func (addedPanicker) HandlerAdded(*pipeline.Context) error       { panic("added") }
func (writePanicker) Write(*pipeline.Context, any) error         { panic("write") }
func (errorPanicker) ErrorCaught(*pipeline.Context, error) error { panic("error") }
func (errorPanicker) ChannelRead(*pipeline.Context, any) error   { return errTest }

func (leavePanicker) ChannelRead(ctx *pipeline.Context, _ any) error {
	if _, err := ctx.Pipeline().Remove(ctx.Name()); err != nil {
		return err
	}
	panic("gone")
}

func (bufferPanicker) ChannelRead(*pipeline.Context, any) error {
	buffer.Wrap([]byte("x")).Advance(2) // in a package the handler calls
	return nil
}

// writer writes what it reads.
type writer struct{}

func (writer) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

func TestHandlerInNamesThePanickingHandler(t *testing.T) {
	read := func(p *pipeline.Pipeline) { p.FireRead("x") }
	for name, c := range map[string]struct {
		handlers []any
		do       func(p *pipeline.Pipeline)
		want     string
	}{
		"pointer":              {[]any{pass{}, &panicker{}, pass{}}, read, "panicker (pipeline_test.panicker)"},
		"value":                {[]any{pass{}, valuePanicker{}}, read, "valuePanicker (pipeline_test.valuePanicker)"},
		"value behind pointer": {[]any{pass{}, &valuePanicker{}}, read, "valuePanicker (pipeline_test.valuePanicker)"},
		"generic": {
			[]any{pass{}, &genericPanicker[int]{}},
			read,
			"genericPanicker (pipeline_test.genericPanicker[int])",
		},
		"promoted method":   {[]any{pass{}, outer{&inner{}}}, read, "outer (pipeline_test.outer)"},
		"function literal":  {[]any{&closurePanicker{}}, read, "closurePanicker (pipeline_test.closurePanicker)"},
		"deferred function": {[]any{&deferPanicker{}}, read, "deferPanicker (pipeline_test.deferPanicker)"},
		"function type": {
			[]any{pass{}, onRead(func(*pipeline.Context, any) error { panic("f") })},
			read,
			"onRead (pipeline_test.onRead)",
		},
		"ErrorCaught":     {[]any{pass{}, errorPanicker{}}, read, "errorPanicker (pipeline_test.errorPanicker)"},
		"inside a callee": {[]any{pass{}, bufferPanicker{}}, read, "bufferPanicker (pipeline_test.bufferPanicker)"},
		"outbound":        {[]any{writePanicker{}, writer{}}, read, "writePanicker (pipeline_test.writePanicker)"},
		"two of a type":   {[]any{&panicker{}, &panicker{}}, read, "panicker or panicker#2 (pipeline_test.panicker)"},
		"just removed":    {[]any{pass{}, leavePanicker{}}, read, "removed handler (pipeline_test.leavePanicker)"},
		"HandlerAdded": {[]any{pass{}}, func(p *pipeline.Pipeline) {
			_ = p.AddLast("new", addedPanicker{})
		}, "new (pipeline_test.addedPanicker)"},
		"no handler": {[]any{pass{}, &sink{}}, func(*pipeline.Pipeline) { panic("elsewhere") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ch := newBare(c.handlers...)
			got := "no panic"
			func() {
				defer func() {
					if recover() != nil {
						got = ch.pipe.HandlerIn(debug.Stack())
					}
				}()
				c.do(ch.pipe.Pipeline)
			}()
			assert.Equal(t, c.want, got)
		})
	}
}

func TestHandlerInReadsEscapedPathsAndGarbage(t *testing.T) {
	ch := newBare(&panicker{})
	for name, c := range map[string]struct{ stack, want string }{
		"empty":   {"", ""},
		"garbage": {"\n\n((((\n)\n\t(\npanic(\n", ""},
		"stack of a running goroutine": {
			"goroutine 7 [running]:\ngithub.com/weirnet/weir/pipeline_test.(*panicker).helper(0x1)\n\t/x/y.go:3 +0x1\n" +
				"created by github.com/weirnet/weir/pipeline_test.(*other).run in goroutine 1\n\t/x/z.go:1\n",
			"panicker (pipeline_test.panicker)",
		},
		"handler in the deferred function": {
			"goroutine 7 [running]:\ngithub.com/weirnet/weir/pipeline_test.(*panicker).rescue(0x1)\n\t/x/y.go:3 +0x1\n" +
				"panic({0x1, 0x2})\n\t/x/panic.go:1\nexample.com/x.(*other).f(0x1)\n\t/x/z.go:1\n",
			"",
		},
		"panic while unwinding another": {
			"goroutine 7 [running]:\npanic({0x1, 0x2})\n\t/x/panic.go:1\nexample.com/x.(*other).cleanUp(0x1)\n\t/x/z.go:1\n" +
				"panic({0x1, 0x2})\n\t/x/panic.go:1\ngithub.com/weirnet/weir/pipeline_test.(*panicker).ChannelRead(0x1)\n\t/x/y.go:3\n",
			"panicker (pipeline_test.panicker)",
		},
		"second panic in a handler": {
			"goroutine 7 [running]:\npanic({0x1, 0x2})\n\t/x/panic.go:1\n" +
				"github.com/weirnet/weir/pipeline_test.(*panicker).ChannelRead.func1(0x1)\n\t/x/y.go:3\n" +
				"panic({0x1, 0x2})\n\t/x/panic.go:1\nexample.com/x.(*other).f(0x1)\n\t/x/z.go:1\n",
			"panicker (pipeline_test.panicker)",
		},
		"other package of that name": {"goroutine 7 [running]:\nexample%2ecom/pipeline_test.(*panicker).helper(0x1)\n", ""},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, ch.pipe.HandlerIn([]byte(c.stack))) })
	}
}

// looker looks at its own stack.
type looker struct{ at func() }

func (s *looker) ChannelRead(ctx *pipeline.Context, _ any) error {
	s.at()
	return nil
}

func TestHandlerAtNamesWhoIsAtWork(t *testing.T) {
	var got []string
	look := func() { got = append(got, pipeline.HandlerAt(debug.Stack())) }
	ch := newBare(pass{}, &looker{at: look})
	ch.pipe.FireRead("x")
	look()
	assert.Equal(t, []string{"pipeline_test.(*looker).ChannelRead", ""}, got)
	assert.Empty(t, pipeline.HandlerAt(nil))
	assert.Empty(t, pipeline.HandlerAt([]byte("\n((\n\t(")))
}
