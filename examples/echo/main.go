// Echo sends back what it receives.
package main

import (
	"flag"
	"log"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/pipeline"
)

type echo struct{}

func (echo) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

func main() {
	srv := weir.Server{Init: func(p *pipeline.Pipeline) error { return p.AddLast("echo", echo{}) }}
	addr := flag.String("addr", "127.0.0.1:9000", "address to listen on")
	flag.StringVar((*string)(&srv.Transport), "transport", "auto", "auto, epoll or uring")
	flag.IntVar(&srv.Loops, "loops", 0, "number of event loops; 0: one per processor")
	flag.Parse()
	log.Fatal(srv.ListenAndServe("tcp", *addr))
}
