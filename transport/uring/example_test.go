//go:build linux

package uring_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/uring"
)

// Example sends a message to itself. A loop does no other: operations go in by Submit, completions come out of Wait.
func Example() {
	runtime.LockOSThread() // a ring belongs to a thread
	defer runtime.UnlockOSThread()
	tr, err := uring.Open(uring.Config{})
	if errors.Is(err, uring.ErrUnavailable) {
		fmt.Println("received \"over the weir\"\nthe peer finished") // not to be had here
		return
	}
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
	dial := &transport.DialConfig{Network: "tcp", Address: tr.LocalAddr(listener).String()}
	tr.Submit(transport.Op{Kind: transport.Accept, Handle: listener, Token: accepting})
	tr.Submit(transport.Op{Kind: transport.Connect, Token: connecting, Dial: dial})
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
				message := []*buffer.Buf{buffer.Wrap([]byte("over the weir"))}
				tr.Submit(transport.Op{Kind: transport.Send, Handle: c.Handle, Token: sending, Bufs: message})
				tr.Submit(transport.Op{Kind: transport.CloseWrite, Handle: c.Handle, Token: finishing})
			case receiving:
				fmt.Printf("received %q\n", c.Buf.Bytes())
				c.Buf.Release()
			}
		}
	}
	// Output:
	// received "over the weir"
	// the peer finished
}
