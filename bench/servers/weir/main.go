// Weir is the server on weir.
package main

import (
	"flag"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/bench/internal/serve"
	"github.com/weirnet/weir/pipeline"
)

func main() {
	o := serve.Flags()
	srv := weir.Server{}
	flag.StringVar((*string)(&srv.Transport), "transport", "auto", "auto, epoll or uring")
	flag.Parse()
	srv.Loops = o.Loops
	init, err := initFor(o)
	if err != nil {
		serve.Fatal(err)
	}
	srv.Init = init
	address, err := srv.Listen("tcp", o.Address)
	if err != nil {
		serve.Fatal(err)
	}
	if err := o.Ready(address.String()); err != nil {
		serve.Fatal(err)
	}
}

func initFor(o *serve.Options) (func(*pipeline.Pipeline) error, error) {
	switch o.Mode {
	case serve.Echo:
		return func(p *pipeline.Pipeline) error { return p.AddLast("echo", echo{}) }, nil
	case serve.Frames:
		return func(p *pipeline.Pipeline) error {
			decoder, err := newDecoder()
			if err != nil {
				return err
			}
			if err := p.AddLast("decoder", decoder); err != nil {
				return err
			}
			return p.AddLast("answer", &answer{})
		}, nil
	case serve.Proxy:
		return func(p *pipeline.Pipeline) error { return p.AddLast("proxy", &front{backend: o.Backend}) }, nil
	}
	return nil, o.BadMode()
}

// pressure stops reading what cannot be answered.
type pressure struct{}

func (pressure) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		ctx.Resume()
	} else {
		ctx.Pause()
	}
	return nil
}

type echo struct{ pressure }

func (echo) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }
