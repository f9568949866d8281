package channel_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

var (
	actions = []string{
		"close", "abort", "remove", "write", "flush", "pauseresume", "pause", "resume", "closewrite",
		"panic", "error", "flushed", "region", "shutdownclose",
	}
	places = []string{
		"added", "active", "read", "complete", "resume", "writable", "flushed", "done",
		"timer", "readclosed", "inactive", "removed", "task", "flush", "write", "closeh", "grant",
		"errorcaught",
	}
)

type anywhere struct {
	t                                                    *testing.T
	place, action                                        string
	left                                                 int
	f                                                    *os.File
	ctx                                                  *pipeline.Context
	active, inactive, removed, asked, told, doneA, doneT int
	got                                                  int
}

func (h *anywhere) at(place string, ctx *pipeline.Context) error {
	if place != h.place || h.left == 0 {
		return nil
	}
	h.left--
	switch h.action {
	case "close":
		return ctx.Close()
	case "abort":
		ctx.Abort(errTest)
	case "remove":
		_, _ = ctx.Pipeline().Remove(ctx.Name())
	case "write":
		_ = ctx.Write(make([]byte, 70_000))
	case "flush":
		_ = ctx.Write("f")
		_ = ctx.Flush()
	case "pauseresume":
		ctx.Pause()
		ctx.Resume()
	case "pause":
		ctx.Pause()
	case "resume":
		ctx.Resume()
	case "closewrite":
		_ = ctx.CloseWrite()
	case "panic":
		panic("matrix")
	case "error":
		return errTest
	case "flushed":
		h.flushed(ctx)
	case "region":
		h.region(ctx)
	case "shutdownclose":
		_ = ctx.Close()
		ctx.Abort(errTest)
	}
	return nil
}

func (h *anywhere) flushed(ctx *pipeline.Context) {
	h.asked++
	ctx.Flushed(func(error) { h.told++; _ = h.at("flushed", ctx) })
}

func (h *anywhere) region(ctx *pipeline.Context) {
	done := func(error) { h.doneT++; _ = h.at("done", ctx) }
	if ctx.Write(&pipeline.FileRegion{File: h.f, Length: 3000, Done: done}) == nil {
		h.doneA++
	}
}

func (h *anywhere) HandlerAdded(ctx *pipeline.Context) error {
	h.ctx = ctx
	return h.at("added", ctx)
}

func (h *anywhere) ChannelActive(ctx *pipeline.Context) error {
	h.active++
	ctx.NewTimer(func(ctx *pipeline.Context) error { return h.at("timer", ctx) }).Reset(100 * time.Microsecond)
	_ = ctx.Ref().Execute(func(ctx *pipeline.Context) { _ = h.at("task", ctx) })
	_ = ctx.Write(make([]byte, 100_000))
	h.flushed(ctx)
	h.region(ctx)
	_ = ctx.Write("tail")
	h.flushed(ctx)
	return h.at("active", ctx)
}

func (h *anywhere) ChannelRead(ctx *pipeline.Context, msg any) error {
	h.got += msg.(*buffer.Buf).Len()
	_ = ctx.Write(msg)
	if h.got > 20_000 && h.got < 40_000 {
		ctx.Pause()
		ctx.NewTimer(func(ctx *pipeline.Context) error { ctx.Resume(); return nil }).Reset(300 * time.Microsecond)
	}
	return h.at("read", ctx)
}
func (h *anywhere) ChannelReadComplete(ctx *pipeline.Context) error { return h.at("complete", ctx) }
func (h *anywhere) ChannelResume(ctx *pipeline.Context) error       { return h.at("resume", ctx) }
func (h *anywhere) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	return h.at("writable", ctx)
}

func (h *anywhere) ChannelReadClosed(ctx *pipeline.Context) error {
	err := h.at("readclosed", ctx)
	ctx.FireReadClosed()
	return err
}

func (h *anywhere) ChannelInactive(ctx *pipeline.Context) error {
	h.inactive++
	return h.at("inactive", ctx)
}

func (h *anywhere) HandlerRemoved(ctx *pipeline.Context) error {
	h.removed++
	return h.at("removed", ctx)
}

func (h *anywhere) Flush(ctx *pipeline.Context) error {
	if err := h.at("flush", ctx); err != nil {
		return err
	}
	return ctx.Flush()
}

func (h *anywhere) Write(ctx *pipeline.Context, msg any) error {
	if err := h.at("write", ctx); err != nil {
		return err
	}
	return ctx.Write(msg)
}

func (h *anywhere) Close(ctx *pipeline.Context) error {
	if err := h.at("closeh", ctx); err != nil {
		return err
	}
	return ctx.Close()
}

func (h *anywhere) ErrorCaught(ctx *pipeline.Context, err error) error {
	_ = h.at("errorcaught", ctx)
	return err
}

func (h *anywhere) ReadGrant(ctx *pipeline.Context) (int, time.Duration) {
	_ = h.at("grant", ctx)
	return 5000, 0
}

func TestEveryActionInEveryCallbackEndsInAnOrderlyWay(t *testing.T) {
	f := openFile(t, make([]byte, 10_000))
	for _, place := range places {
		for _, action := range actions {
			for seed := uint64(1); seed <= 3; seed++ {
				t.Run(fmt.Sprintf("%s/%s/%d", place, action, seed), func(t *testing.T) {
					faults := sim.Faults{}
					if seed > 1 {
						faults = sim.Mild()
					}
					p := newSeededPair(t, seed, sim.Config{
						Faults: faults, SendBufferBytes: 16 << 10, ReceiveBufferBytes: 16 << 10,
					})
					p.serverConfig.PausedCloseTimeout = 200 * time.Millisecond
					p.serverConfig.CloseTimeout = 100 * time.Millisecond
					p.clientConfig.CloseTimeout = 100 * time.Millisecond
					var hs []*anywhere
					p.listen(func() []any {
						h := &anywhere{t: t, place: place, action: action, left: 2, f: f}
						hs = append(hs, h)
						return []any{h, &struct{ pauser }{}}
					})
					client := &probe{onActive: func(ctx *pipeline.Context) error {
						return ctx.Write(make([]byte, 60_000))
					}}
					p.dial(client)
					p.run(20 * time.Millisecond)
					if client.inactive == 0 && client.ctx != nil {
						_ = client.ctx.Close()
					}
					for i := 0; i < 60_000 && len(p.closed) < 2; i++ {
						p.step()
					}
					require.Len(t, p.closed, 2, "a channel stays open: %v", client.events[len(client.events)-1:])
					for _, h := range hs {
						if action != "remove" {
							require.Equal(t, h.active, h.inactive)
						}
						require.Equal(t, h.asked, h.told, "flushed")
						require.Equal(t, h.doneA, h.doneT, "done")
						require.LessOrEqual(t, h.removed, 1)
					}
				})
			}
		}
	}
}
