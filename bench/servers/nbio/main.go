// Nbio is the server on github.com/lesismal/nbio, in its default mode (level triggered, read by the poller).
package main

import (
	"flag"
	"net"

	"github.com/lesismal/nbio"
	"github.com/lesismal/nbio/logging"

	"github.com/weirnet/weir/bench/internal/frame"
	"github.com/weirnet/weir/bench/internal/serve"
)

func main() {
	o := serve.Flags()
	flag.Parse()
	logging.SetLevel(logging.LevelError)
	var listener net.Listener
	engine := nbio.NewEngine(nbio.Config{
		Network: "tcp",
		Addrs:   []string{o.Address},
		NPoller: o.Loops,
		// nbio accepts through package net, which sets TCP_NODELAY.
		Listen: func(network, address string) (l net.Listener, err error) {
			l, err = net.Listen(network, address)
			listener = l
			return l, err
		},
	})
	switch o.Mode {
	case serve.Echo:
		engine.OnData(func(c *nbio.Conn, data []byte) { _, _ = c.Write(data) })
	case serve.Frames:
		engine.OnOpen(func(c *nbio.Conn) { c.SetSession(&session{}) })
		engine.OnData(frames)
	default:
		serve.Fatal(o.BadMode())
	}
	if err := engine.Start(); err != nil {
		serve.Fatal(err)
	}
	if err := o.Ready(listener.Addr().String()); err != nil {
		serve.Fatal(err)
	}
}

// session is what a framed connection has: the beginning of a frame, and a buffer for replies.
type session struct{ rest, out []byte }

func frames(c *nbio.Conn, data []byte) {
	s := c.Session().(*session)
	in := data
	if len(s.rest) > 0 {
		s.rest = append(s.rest, data...)
		in = s.rest
	}
	out, taken, err := frame.AppendReplies(s.out[:0], in)
	s.out = out
	s.rest = append(s.rest[:0], in[taken:]...)
	if len(out) > 0 {
		_, _ = c.Write(out)
	}
	if err != nil {
		_ = c.CloseWithError(err)
	}
}
