//go:build linux

package main

import (
	"log/slog"
	"net/netip"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/admission"
	"github.com/weirnet/weir/pipeline"
)

// weirTarget is a server of weir's.
type weirTarget struct {
	server *weir.Server
	at     string
	census census
}

func openWeir(cfg config) (target, error) {
	t := &weirTarget{}
	t.server = &weir.Server{
		Transport: cfg.transport, Loops: cfg.loops,
		Logger: slog.New(slog.DiscardHandler),
		Init:   func(p *pipeline.Pipeline) error { return p.AddLast("greeter", &greeter{&t.census}) },
	}
	if cfg.serve == refusedWay {
		words := []byte(greeting)
		t.server.Admit = func(admission.Arrival) admission.Verdict {
			return admission.Verdict{Action: admission.Busy, Words: words}
		}
	} else {
		t.server.Accept = weir.Accept(cfg.serve)
	}
	if t.server.Accept == weir.AcceptHandoff {
		known := false
		t.server.Place = func(netip.AddrPort, int) int { // it runs on the loop that accepts
			if !known {
				known = true
				t.census.enrollAcceptor()
			}
			return -1 // the usual way
		}
	}
	addr, err := t.server.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		t.at = addr.String()
		err = t.enroll()
	}
	if err != nil {
		_ = t.server.Close()
		return nil, err
	}
	return t, nil
}

// enroll lets each loop's thread count its connections.
func (t *weirTarget) enroll() error {
	group := t.server.Group()
	for i := range group.Len() {
		done := make(chan struct{})
		if err := group.Loop(i).Execute(func() { t.census.enroll(); close(done) }); err != nil {
			return err
		}
		<-done
	}
	return nil
}

func (t *weirTarget) address() string { return t.at }

func (t *weirTarget) sample() (sample, error) { return t.census.sample() }

func (t *weirTarget) close() error { return t.server.Close() }

// greeter says something to each connection and then waits for its end.
type greeter struct{ census *census }

func (g *greeter) ChannelActive(ctx *pipeline.Context) error {
	g.census.came()
	ctx.FireActive()
	return ctx.WriteBytes([]byte(greeting))
}

func (g *greeter) ChannelRead(*pipeline.Context, any) error { return nil }

func (g *greeter) ChannelInactive(ctx *pipeline.Context) error {
	g.census.went()
	ctx.FireInactive()
	return nil
}
