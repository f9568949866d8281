package idle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirnet/weir/handlers/idle"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// patience asks a silent peer once and then hangs up.
type patience struct{}

func (patience) ChannelEvent(ctx *pipeline.Context, event any) error {
	switch e, ok := event.(*idle.Event); {
	case !ok:
		ctx.FireEvent(event)
	case e.First:
		return ctx.Write("are you there?\n")
	default:
		return ctx.Close()
	}
	return nil
}

func Example() {
	h, err := idle.New(idle.Config{Reader: 30 * time.Second})
	if err != nil {
		panic(err)
	}
	var t testing.T // a program has a server instead
	ch := pipelinetest.New(&t, h, patience{})
	ch.Advance(30 * time.Second)
	fmt.Print(ch.OutboundString())
	ch.Advance(30 * time.Second)
	fmt.Println("closed:", ch.Closed())
	// Output:
	// are you there?
	// closed: true
}
