package offload_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// Frames go to a pool, results come back in order and are written on the loop.
func Example() {
	pool, err := offload.NewPool(offload.PoolConfig{Workers: 2})
	if err != nil {
		panic(err)
	}
	defer func() { _ = pool.Close(context.Background()) }()

	upper := func(_ context.Context, frame []byte) (string, error) { // on a goroutine of the pool
		return strings.ToUpper(string(frame)), nil
	}
	reply := func(ctx *pipeline.Context, r string, err error) error { // on the loop
		if err != nil {
			return err
		}
		return ctx.Write(r + "\n")
	}
	handler, err := offload.Bytes(pool, upper, reply)
	if err != nil {
		panic(err)
	}
	var t testing.T // a program has a server instead
	ch := pipelinetest.New(&t, handler)
	ch.WriteInbound("one", "two", "three")
	ch.PeerClose() // results still arrive: the channel closes behind them
	ch.RunUntil(ch.Closed)
	fmt.Print(ch.OutboundString())
	// Output:
	// ONE
	// TWO
	// THREE
}
