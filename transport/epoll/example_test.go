//go:build linux

package epoll_test

import (
	"errors"
	"fmt"
	"io"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/epoll"
)

// Example sends a message to itself. What a loop does is no different: operations go in by Submit, completions come out
// of Wait.
func Example() {
	tr, err := epoll.Open(epoll.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tr.Close()
	listener, err := tr.Listen(transport.ListenConfig{Network: "tcp", Address: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	const accepting, connecting, sending, finishing, receiving = 1, 2, 3, 4, 5
	tr.Submit(transport.Op{Kind: transport.Accept, Handle: listener, Token: accepting})
	tr.Submit(transport.Op{Kind: transport.Connect, Token: connecting, Dial: &transport.DialConfig{
		Network: "tcp", Address: tr.LocalAddr(listener).String(),
	}})
	batch := make([]transport.Completion, 0, 64)
	for {
		completions, err := tr.Wait(batch, -1)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, c := range completions {
			switch {
			case errors.Is(c.Err, io.EOF):
				fmt.Println("the peer finished")
				return
			case c.Err != nil:
				fmt.Println(c.Err)
				return
			}
			switch c.Token {
			case accepting:
				tr.Submit(transport.Op{Kind: transport.Recv, Handle: c.Handle, Token: receiving, Limit: 1 << 16})
			case connecting:
				hello := []*buffer.Buf{buffer.Wrap([]byte("hello"))}
				tr.Submit(transport.Op{Kind: transport.Send, Handle: c.Handle, Token: sending, Bufs: hello})
				tr.Submit(transport.Op{Kind: transport.CloseWrite, Handle: c.Handle, Token: finishing})
			case receiving:
				fmt.Printf("received %q\n", c.Buf.Bytes())
				c.Buf.Release()
			}
		}
	}
	// Output:
	// received "hello"
	// the peer finished
}
