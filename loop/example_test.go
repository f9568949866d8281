package loop_test

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// greeter is a Completer that replies to a control node.
type greeter struct {
	loop *loop.Loop
	reg  loop.Registration
	hi   loop.Node
}

func (g *greeter) Complete(c *transport.Completion) {
	fmt.Println("completed: operation", c.Token.Tag())
	g.loop.Unregister(g.reg)
}

func (g *greeter) RunNode(*loop.Node) {
	fmt.Println("node: hello from the loop")
	g.loop.Dirty(g)
}

func (g *greeter) EndTurn() { fmt.Println("end of the turn") }

func (g *greeter) Panicked(v any, _ []byte) { fmt.Println("panicked:", v) }

func (g *greeter) Abort(cause error) {
	fmt.Println("abort:", cause)
	g.loop.Submit(transport.Op{Kind: transport.Close, Token: g.reg.Token(7)})
}

// A loop on a transport of its own; Run, Execute, Post and Stop are all there is to drive it.
func Example() {
	l, err := loop.New(loop.Config{
		// A real one: uring.Open, epoll.Open, sim.
		Open: func(bool) (transport.Transport, error) { return newFake(), nil },
		Name: "example",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	g := &greeter{loop: l}
	g.hi.Init(g)
	_ = l.Execute(func() { // runs on the loop, where registering belongs
		g.reg, _ = l.Register(g)
		l.Post(&g.hi)
		l.NewTimer(g, func() {
			fmt.Println("timer: that was it")
			l.Stop()
		}).Reset(time.Second)
	})
	fmt.Println("run:", l.Run())
	// Output:
	// node: hello from the loop
	// end of the turn
	// timer: that was it
	// abort: loop: stopped
	// completed: operation 7
	// run: <nil>
}
