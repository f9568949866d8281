package ipfilter_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/handlers/ipfilter"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func Example() {
	filter, err := ipfilter.New(ipfilter.Config{
		Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		Deny:  []netip.Prefix{netip.MustParsePrefix("192.0.2.66/32")},
	})
	if err != nil {
		panic(err)
	}
	var t testing.T // a program has a server instead, whose Init adds the one filter to each pipeline
	for _, peer := range []string{"192.0.2.1:1024", "192.0.2.66:1024", "198.51.100.1:1024"} {
		ch := pipelinetest.NewConfig(&t, pipelinetest.Config{RemoteAddr: netip.MustParseAddrPort(peer)}, filter)
		fmt.Println(peer, ch.Open(), ch.Cause())
	}
	fmt.Printf("%+v\n", filter.Stats())
	// Output:
	// 192.0.2.1:1024 true <nil>
	// 192.0.2.66:1024 false ipfilter: peer rejected: 192.0.2.66
	// 198.51.100.1:1024 false ipfilter: peer rejected: 198.51.100.1
	// {Accepted:1 Rejected:2}
}
