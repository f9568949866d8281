package channel_test

import (
	"fmt"
	"log/slog"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// greeter says hello, prints the answer and closes.
type greeter struct{}

func (greeter) ChannelActive(ctx *pipeline.Context) error { return ctx.Write("hello") }

func (greeter) ChannelRead(ctx *pipeline.Context, msg any) error {
	fmt.Printf("%s came back\n", msg.(*buffer.Buf).Bytes())
	return ctx.Close()
}

// A listener and a dialer on one loop over the simulated network, turned by hand.
func Example() {
	world := sim.NewWorld(1, sim.Config{})
	l, err := loop.New(loop.Config{
		Open:   func(bool) (transport.Transport, error) { return world.Open(), nil },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := l.Open(); err != nil {
		fmt.Println(err)
		return
	}
	_, err = channel.Listen(l, channel.ListenerConfig{
		Transport: transport.ListenConfig{Network: "tcp", Address: "10.0.0.1:7000"},
		Channel:   &channel.Config{Init: func(p *pipeline.Pipeline) error { return p.AddLast("echo", echo{}) }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	closed := false
	client := &channel.Config{
		Init:   func(p *pipeline.Pipeline) error { return p.AddLast("greeter", greeter{}) },
		Closed: func(*channel.Channel) { closed = true },
	}
	dc := &transport.DialConfig{Network: "tcp", Address: "10.0.0.1:7000"}
	channel.Dial(l, dc, client, func(_ *channel.Channel, err error) {
		fmt.Println("connected:", err == nil)
	})
	for !closed {
		if _, err := l.RunOnce(-1); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("closed:", l.Close() == nil)
	// Output:
	// connected: true
	// hello came back
	// closed: true
}
