package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

type (
	noError      struct{ pass }
	otherMessage struct{ pass }
	noContext    struct{ pass }
	otherGrant   struct{ pass }
	otherWrite   struct{ onRead }
	valueMethods struct{ onRead }
)

func (noError) ChannelActive(*pipeline.Context)                                  {}
func (otherMessage) ChannelEvent(*pipeline.Context, *buffer.Buf) error           { return nil }
func (noContext) HandlerRemoved() error                                          { return nil }
func (otherGrant) ReadGrant(*pipeline.Context) int                               { return 0 }
func (otherWrite) Write(*pipeline.Context, *buffer.Buf) error                    { return nil }
func (valueMethods) Write(p []byte) (int, error)                                 { return len(p), nil }
func (valueMethods) Close() error                                                { return nil }
func (valueMethods) Flush()                                                      {}
func (*valueMethods) ErrorCaught(_ *pipeline.Context, err error, _ string) error { return err }

func TestAMethodThatNearlyMatchesIsRefusedByName(t *testing.T) {
	for _, c := range []struct {
		h    any
		want string
	}{
		{noError{}, "the ChannelActive of pipeline_test.noError is a func(*pipeline.Context), " +
			"not a func(*pipeline.Context) error"},
		{otherMessage{}, "the ChannelEvent of pipeline_test.otherMessage is a func(*pipeline.Context, *buffer.Buf) error, " +
			"not a func(*pipeline.Context, interface {}) error"},
		{noContext{}, "the HandlerRemoved of pipeline_test.noContext is a func() error, not a func(*pipeline.Context) error"},
		{otherGrant{}, "the ReadGrant of pipeline_test.otherGrant is a func(*pipeline.Context) int, " +
			"not a func(*pipeline.Context) (int, time.Duration)"},
		{otherWrite{}, "the Write of pipeline_test.otherWrite is a func(*pipeline.Context, *buffer.Buf) error, " +
			"not a func(*pipeline.Context, interface {}) error"},
		{&valueMethods{}, "the ErrorCaught of *pipeline_test.valueMethods is a"},
	} {
		ch := newBare(pass{})
		for _, err := range []error{
			ch.pipe.AddLast("x", c.h), ch.pipe.AddFirst("", c.h), second(ch.pipe.Replace("pass", "x", c.h)),
		} {
			assert.ErrorIs(t, err, pipeline.ErrNotHandler)
			assert.ErrorContains(t, err, c.want)
		}
		assert.Equal(t, []string{"pass"}, ch.pipe.Names())
	}
	// Methods of other interfaces are a handler's own matter.
	assert.NoError(t, newBare().pipe.AddLast("x", valueMethods{}))
	assert.ErrorIs(t, newBare().pipe.AddLast("x", nil), pipeline.ErrNotHandler)
}

func second(_ any, err error) error { return err }
