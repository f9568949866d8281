package watermark_test

import (
	"fmt"
	"testing"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// A peer that does not read its replies is not read from until it does.
func ExampleHandler() {
	h, err := watermark.New(watermark.Config{HighBytes: 1024, LowBytes: 256})
	if err != nil {
		fmt.Println(err)
		return
	}
	echo := onRead(func(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) })
	ch := pipelinetest.New(&testing.T{}, h, echo)
	ch.Stall() // the peer does not read
	ch.WriteInbound(make([]byte, 2000))
	fmt.Println(h.Level(), "with", ch.Pending(), "pending")
	ch.WriteInbound("more")
	ch.Unstall()
	fmt.Println(h.Level(), "and", ch.Pending(), "pending")
	// Output:
	// HIGH with 2048 pending
	// NORMAL and 0 pending
}

// Measurements of which some may be lost: reading goes on while the peer does not take the replies, and whole lines are
// dropped.
func ExampleDropGate() {
	h, err := watermark.New(watermark.Config{HighBytes: 4 << 10, LowBytes: 1 << 10, KeepReading: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	lines, err := codec.NewLines(codec.LinesConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	app := onRead(func(ctx *pipeline.Context, msg any) error {
		line := string(msg.(*buffer.Buf).Bytes())
		fmt.Println("measured", line)
		return ctx.Write("noted " + line + "\n")
	})
	ch := pipelinetest.New(&testing.T{}, h, lines, watermark.NewDropGate(h), app)
	ch.Stall() // the peer does not read
	ch.WriteInbound("1.5\n2.5\n3.5\n", "4.5\n")
	ch.Drain(10)
	ch.WriteInbound("5.5\n")
	ch.Unstall()
	snap := h.Stats().Snapshot()
	fmt.Println(snap.Delivered.Frames, "delivered,", snap.Dropped[watermark.ReasonPending].Frames, "dropped")
	// Output:
	// measured 1.5
	// measured 5.5
	// 2 delivered, 3 dropped
}

// Channels that fill one queue are not read from while it is full.
func ExampleShared() {
	queue, err := watermark.NewShared(watermark.SharedConfig{HighBytes: 1000, LowBytes: 400})
	if err != nil {
		fmt.Println(err)
		return
	}
	loop := pipelinetest.NewLoop(&testing.T{})
	connect := func(name string) *pipelinetest.Channel {
		h, err := watermark.New(watermark.Config{Shared: []*watermark.Shared{queue}})
		if err != nil {
			fmt.Println(err)
		}
		return loop.New(h, onRead(func(_ *pipeline.Context, msg any) error {
			queue.Add(int64(bytesOf(msg)))
			fmt.Println(name, "queues", bytesOf(msg))
			return nil
		}))
	}
	a, b := connect("a"), connect("b")
	a.WriteInbound(make([]byte, 600))
	b.WriteInbound(make([]byte, 500))
	b.WriteInbound(make([]byte, 100)) // waits
	fmt.Println("full:", queue.High())
	queue.Add(-700) // by whoever takes from the queue, on any goroutine
	loop.RunTasks()
	fmt.Println("full:", queue.High())
	// Output:
	// a queues 600
	// b queues 500
	// full: true
	// b queues 100
	// full: false
}
