package pipelinetest_test

import (
	"fmt"
	"testing"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// A handler that echoes, with a peer that does not read at first.
func ExampleNew() {
	echo := onRead(func(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) })
	ch := pipelinetest.New(&testing.T{}, echo) // in a test: its t
	ch.Stall()
	ch.WriteInbound("hello, ", "world")
	fmt.Printf("%q\n", ch.OutboundString())
	ch.Drain(5)
	fmt.Printf("%q\n", ch.OutboundString())
	ch.Unstall()
	ch.PeerClose()
	fmt.Printf("%q, closed: %v\n", ch.OutboundString(), ch.Closed())
	// Output:
	// ""
	// "hello"
	// ", world", closed: true
}
