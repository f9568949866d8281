//go:build linux

package main

import (
	"log/slog"
	"net"
	"time"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/pipeline"
)

// weirTarget is a server of weir's.
type weirTarget struct {
	server *weir.Server
	at     string
	census census
}

func openWeir(cfg config, w way) (target, error) {
	t := &weirTarget{}
	t.server = &weir.Server{
		Transport: cfg.transport, Loops: cfg.loops, Logger: slog.New(slog.DiscardHandler),
		Init: func(p *pipeline.Pipeline) error { return p.AddLast("greeter", &greeter{&t.census}) },
	}
	var err error
	if t.at, err = w.serve(t.server); err == nil {
		err = t.enroll()
	}
	if err != nil {
		_ = t.server.Close()
		return nil, err
	}
	return t, nil
}

// listen listens in the server's own way.
func listen(s *weir.Server) (string, error) {
	addr, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return addr.String(), nil
}

// adopt gives the server a listener: one socket for all loops.
func adopt(s *weir.Server) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	//weir:goroutines Serve returns when the server has ended
	go func() { ended <- s.Serve(l) }()
	for len(s.Addrs()) == 0 {
		select { //weir:goroutines no loop runs here
		case err := <-ended:
			return "", err
		case <-time.After(time.Millisecond):
		}
	}
	return l.Addr().String(), nil
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
