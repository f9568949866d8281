package lb_test

import (
	"context"
	"log"
	"net"
	"net/netip"
	"os/signal"
	"syscall"

	"github.com/weirnet/weir/xdp"
	"github.com/weirnet/weir/xdp/lb"
)

// Balances HTTPS over two servers, one of which is three times as strong. It needs capabilities, so it is not run
// here.
func Example() {
	device, err := net.InterfaceByName("eth0")
	if err != nil {
		log.Fatal(err)
	}
	entry, err := xdp.Attach(xdp.Config{Interface: device.Index, Mode: xdp.Fallback})
	if err != nil {
		log.Fatal(err)
	}
	defer entry.Close()
	balancer, err := lb.New(lb.Config{Interface: device.Index})
	if err != nil {
		log.Fatal(err)
	}
	defer balancer.Close()
	web := lb.VIP{Addr: netip.MustParseAddr("192.0.2.1"), Port: 443, Protocol: lb.TCP}
	if err := balancer.AddVIP(web, lb.Health{Kind: lb.TCPCheck}); err != nil {
		log.Fatal(err)
	}
	for address, weight := range map[string]uint16{"192.0.2.11": 3, "192.0.2.12": 1} {
		if err := balancer.AddServer(web, lb.Server{Addr: netip.MustParseAddr(address), Weight: weight}); err != nil {
			log.Fatal(err)
		}
	}
	if err := balancer.Install(entry); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log.Println(balancer.Run(ctx))
}
