package channel_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

// unhandled writes down what came through to the tail.
type unhandled struct{ log []string }

func (u *unhandled) note(c *channel.Channel, format string, v any) {
	u.log = append(u.log, fmt.Sprintf(format, v)+fmt.Sprintf(", open %v", c.Open()))
}

func (u *unhandled) Message(c *channel.Channel, msg any) {
	u.note(c, "message %s", msg.(*buffer.Buf).Bytes())
}
func (u *unhandled) Event(c *channel.Channel, event any) { u.note(c, "event %v", event) }
func (u *unhandled) Error(c *channel.Channel, err error) { u.note(c, "error %v", err) }

// talker passes on everything, and fails at the end.
type talker struct{}

func (talker) ChannelRead(ctx *pipeline.Context, msg any) error {
	ctx.FireEvent("ping")
	ctx.FireRead(msg)
	return nil
}

func (talker) ChannelReadClosed(*pipeline.Context) error { return errors.New("no") }
func (talker) ChannelInactive(*pipeline.Context) error   { return errors.New("late") }

func TestWhatNobodyHandlesGoesToTheConfigOrToTheLog(t *testing.T) {
	for _, observed := range []bool{true, false} {
		t.Run(fmt.Sprint("observed=", observed), func(t *testing.T) {
			p := newPair(t, sim.Config{})
			var u unhandled
			var log bytes.Buffer
			p.serverConfig.Logger = slog.New(slog.NewTextHandler(&log, nil))
			if observed {
				p.serverConfig.Unhandled = &u
			}
			c := p.connect(talker{})
			for _, s := range []string{"a", "b"} {
				assert.NoError(t, c.Pipeline().Write(s))
				p.run(time.Millisecond)
			}
			c.Close(nil)
			p.run(time.Millisecond)
			if observed {
				assert.Equal(t, []string{
					"event ping, open true", "message a, open true", "event ping, open true", "message b, open true",
					"error no, open true", "error late, open false",
				}, u.log)
				assert.Empty(t, log.String())
				return
			}
			assert.Empty(t, u.log)
			assert.Equal(t, 1, strings.Count(log.String(), "unhandled"), log.String())
			assert.Contains(t, log.String(), "level=WARN")
			assert.Contains(t, log.String(), "type=*buffer.Buf")
		})
	}
}
