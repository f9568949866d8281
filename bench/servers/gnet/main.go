// Gnet is the server on github.com/panjf2000/gnet/v2, in its default mode (level triggered, 64 KiB read buffer). Build
// it with -tags poll_opt, as gnet's own benchmarks do.
package main

import (
	"flag"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"

	"github.com/weirnet/weir/bench/internal/frame"
	"github.com/weirnet/weir/bench/internal/serve"
)

func main() {
	o := serve.Flags()
	flag.Parse()
	if err := o.FixAddress(); err != nil {
		serve.Fatal(err)
	}
	ready := make(chan struct{})
	var handler gnet.EventHandler
	switch o.Mode {
	case serve.Echo:
		handler = &echo{booted: booted{ready: ready}}
	case serve.Frames:
		handler = &frames{booted: booted{ready: ready}}
	default:
		serve.Fatal(o.BadMode())
	}
	go func() {
		serve.Fatal(gnet.Run(handler, "tcp://"+o.Address,
			gnet.WithNumEventLoop(o.Loops),
			gnet.WithReusePort(true),
			gnet.WithTCPNoDelay(gnet.TCPNoDelay),
			gnet.WithLogLevel(logging.ErrorLevel),
		))
	}()
	<-ready
	if err := o.Ready(o.Address); err != nil {
		serve.Fatal(err)
	}
}

type booted struct {
	gnet.BuiltinEventEngine
	ready chan struct{}
}

func (b *booted) OnBoot(gnet.Engine) gnet.Action {
	close(b.ready)
	return gnet.None
}

type echo struct{ booted }

func (*echo) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := c.Write(b); err != nil {
		return gnet.Close
	}
	return gnet.None
}

// frames gives each connection a buffer for its replies when it first needs one, and writes it once per event.
type frames struct{ booted }

func (*frames) OnTraffic(c gnet.Conn) gnet.Action {
	in, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	out, _ := c.Context().(*[]byte)
	if out == nil {
		out = new([]byte)
		c.SetContext(out)
	}
	replies, taken, err := frame.AppendReplies((*out)[:0], in)
	*out = replies
	if taken > 0 {
		if _, err := c.Write(replies); err != nil {
			return gnet.Close
		}
		if _, err := c.Discard(taken); err != nil {
			return gnet.Close
		}
	}
	if err != nil {
		return gnet.Close
	}
	return gnet.None
}
