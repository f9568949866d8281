package proxyproto_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/handlers/proxyproto"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// clients prints for whom a connection is.
type clients struct{}

func (clients) ChannelEvent(ctx *pipeline.Context, event any) error {
	if h, ok := event.(*proxyproto.Header); ok && !h.Local {
		fmt.Println("client", h.Source)
		return nil
	}
	ctx.FireEvent(event)
	return nil
}

func Example() {
	proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	decoder, err := proxyproto.NewDecoder(proxyproto.DecoderConfig{Trusted: proxies})
	if err != nil {
		panic(err)
	}
	var t testing.T // a program has a server instead
	ch := pipelinetest.New(&t, decoder, clients{})
	ch.WriteInbound("PROXY TCP4 198.51.100.7 192.0.2.1 40000 443\r\nhello")
	fmt.Println(ch.InboundString())
	// Output:
	// client 198.51.100.7:40000
	// hello
}
