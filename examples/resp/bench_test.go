package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// BenchmarkRequests is what a request costs from received bytes to queued reply, without sockets.
func BenchmarkRequests(b *testing.B) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"PING", []string{"PING"}},
		{"GET", []string{"GET", "key:000000000001"}},
		{"SET", []string{"SET", "key:000000000001", "xxx"}},
		{"INCR", []string{"INCR", "n"}},
	} {
		for _, depth := range []int{1, 16} {
			b.Run(fmt.Sprintf("request=%s/depth=%d", c.name, depth), func(b *testing.B) {
				ch := newChannel(b)
				for i := range 1000 {
					ch.WriteInbound(request("SET", fmt.Sprintf("key:%012d", i), "xxx"))
				}
				ch.Outbound()
				in := ch.Context("decoder").Pool().Get(64 << 10)
				in.AppendString(strings.Repeat(request(c.args...), depth))
				b.ReportAllocs()
				run := func() {
					for range 64 {
						ch.Context("decoder").Pipeline().FireRead(in)
					}
				}
				for b.Loop() {
					ch.Do(run)
					ch.Outbound()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*64*depth), "ns/request")
				in.Release()
				_ = pipelinetest.Config{}
			})
		}
	}
}
