// Netpoll is the server on github.com/cloudwego/netpoll, with its default runner: requests run on its goroutine pool.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"io"

	"github.com/cloudwego/netpoll"

	"github.com/weirnet/weir/bench/internal/frame"
	"github.com/weirnet/weir/bench/internal/serve"
)

func main() {
	o := serve.Flags()
	flag.Parse()
	var handle netpoll.OnRequest
	switch o.Mode {
	case serve.Echo:
		handle = echo
	case serve.Frames:
		handle = frames
	default:
		serve.Fatal(o.BadMode())
	}
	if err := netpoll.Configure(netpoll.Config{PollerNum: o.Loops, LoggerOutput: io.Discard}); err != nil {
		serve.Fatal(err)
	}
	l, err := netpoll.CreateListener("tcp", o.Address)
	if err != nil {
		serve.Fatal(err)
	}
	loop, err := netpoll.NewEventLoop(handle)
	if err != nil {
		serve.Fatal(err)
	}
	go func() { serve.Fatal(loop.Serve(l)) }()
	if err := o.Ready(l.Addr().String()); err != nil {
		serve.Fatal(err)
	}
}

// echo copies: netpoll can also write a slice of its reader without copying (WriteDirect), which costs more than it
// saves below some KiB.
func echo(_ context.Context, c netpoll.Connection) error {
	r, w := c.Reader(), c.Writer()
	n := r.Len()
	in, err := r.Next(n)
	if err != nil {
		return err
	}
	out, err := w.Malloc(n)
	if err != nil {
		return err
	}
	copy(out, in)
	if err := r.Release(); err != nil {
		return err
	}
	return w.Flush()
}

// frames returns the whole frames that are there and waits for the rest of one that has begun, as netpoll's
// documentation does it: a handler may block.
func frames(_ context.Context, c netpoll.Connection) error {
	r, w := c.Reader(), c.Writer()
	for r.Len() > 0 {
		header, err := r.Next(frame.HeaderBytes)
		if err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(header))
		if n > frame.MaxPayloadBytes {
			_ = c.Close()
			return frame.ErrTooLong
		}
		if r.Len() < n { // the rest may depend on what was not flushed yet
			if err := w.Flush(); err != nil {
				return err
			}
		}
		payload, err := r.Next(n)
		if err != nil {
			return err
		}
		out, err := w.Malloc(frame.HeaderBytes + n)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint32(out, uint32(n))
		copy(out[frame.HeaderBytes:], payload)
	}
	if err := r.Release(); err != nil {
		return err
	}
	return w.Flush()
}
