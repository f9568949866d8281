package sim_test

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// A greeting crosses a network with a latency of a tenth of a second, in no time at all.
func Example() {
	world := sim.NewWorld(1, sim.Config{Latency: 100 * time.Millisecond})
	server, client := world.Open(), world.Open()
	ln, err := server.Listen(transport.ListenConfig{Network: "tcp", Address: "10.0.0.1:7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	server.Submit(transport.Op{Kind: transport.Accept, Handle: ln, Token: 1})
	client.Submit(transport.Op{
		Kind: transport.Connect, Token: 2, Dial: &transport.DialConfig{Network: "tcp", Address: "10.0.0.1:7"},
	})
	greeting := []*buffer.Buf{buffer.Wrap([]byte("hello"))}
	for world.Idle() == 0 { // until nothing will ever happen again
		for _, t := range []*sim.Transport{server, client} {
			out, err := t.Wait(nil, -1)
			if err != nil {
				fmt.Println(err)
				return
			}
			for _, c := range out {
				switch c.Token {
				case 1:
					server.Submit(transport.Op{Kind: transport.Recv, Handle: c.Handle, Token: 3, Limit: 100})
				case 2:
					client.Submit(transport.Op{Kind: transport.Send, Handle: c.Handle, Token: 4, Bufs: greeting})
				case 3:
					fmt.Printf("%q at %v\n", c.Buf.Bytes(), t.Now().Round(time.Millisecond))
					c.Buf.Release()
				}
			}
		}
	}
	fmt.Println("world:", world.Check())
	// Output:
	// "hello" at 300ms
	// world: <nil>
}
