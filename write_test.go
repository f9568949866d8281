//go:build linux

package weir_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/pipeline"
)

// refs hands the Ref of each new channel out.
type refs chan pipeline.Ref

func (r refs) ChannelActive(ctx *pipeline.Context) error {
	r <- ctx.Ref()
	return nil
}

// refTo returns the Ref of a channel whose peer reads and throws away.
func refTo(tb testing.TB, kind weir.Kind) pipeline.Ref {
	tb.Helper()
	made := make(refs, 1)
	c := connect(tb, "tcp", startTCP(tb, &weir.Server{Transport: kind, Loops: 1, Init: only(func() any { return made })}))
	go func() { _, _ = io.Copy(io.Discard, c) }()
	return <-made
}

// BenchmarkWriteFlush queues n small messages on the loop and sends them with one flush.
func BenchmarkWriteFlush(b *testing.B) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		for _, n := range []int{1, 16} {
			b.Run(fmt.Sprintf("transport=%s/messages=%d", kind, n), func(b *testing.B) {
				needTransport(b, kind)
				ref := refTo(b, kind)
				message := make([]byte, 64)
				done := make(chan error)
				var sent func(error)
				round := func(ctx *pipeline.Context) {
					for range n {
						if err := ctx.WriteBytes(message); err != nil {
							done <- err
							return
						}
					}
					ctx.Flushed(sent)
					_ = ctx.Flush()
				}
				sent = func(err error) { done <- err }
				b.ReportAllocs()
				b.SetBytes(int64(n * len(message)))
				for b.Loop() {
					if err := ref.Execute(round); err != nil {
						b.Fatal(err)
					}
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRefWrite writes from another goroutine, which waits whenever too much is pending.
func BenchmarkRefWrite(b *testing.B) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		for _, size := range []int{64, 4096} {
			b.Run(fmt.Sprintf("transport=%s/size=%d", kind, size), func(b *testing.B) {
				needTransport(b, kind)
				ref := refTo(b, kind)
				message := make([]byte, size)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					if err := ref.Write(context.Background(), message); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
