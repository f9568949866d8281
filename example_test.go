//go:build linux

package weir_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// echoUnderPressure sends back what it receives. While the peer does not take it, it does not read on.
type echoUnderPressure struct{}

func (echoUnderPressure) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

func (echoUnderPressure) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		ctx.Resume()
	} else {
		ctx.Pause()
	}
	return nil
}

func ExampleServer() {
	srv := weir.Server{
		Loops:  1,
		Logger: quiet(),
		Init:   func(p *pipeline.Pipeline) error { return p.AddLast("echo", echoUnderPressure{}) },
	}
	addr, err := srv.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		log.Fatal(err)
	}
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Printf("%s, %v\n", answer, err)
	c.Close()
	fmt.Println(srv.Shutdown(context.Background()))
	fmt.Println(srv.Wait())
	// Output:
	// hello, <nil>
	// <nil>
	// weir: server closed
}

// printer prints what it receives, and closes.
type printer struct{}

func (printer) ChannelRead(ctx *pipeline.Context, msg any) error {
	fmt.Printf("received %s\n", msg.(*buffer.Buf).Bytes())
	return ctx.Close()
}

func ExampleDialer() {
	srv := weir.Server{Loops: 1, Logger: quiet(), Init: initEcho}
	addr, err := srv.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	d := weir.Dialer{Server: &srv} // on the server's loops
	ref, err := d.Dial(context.Background(), "tcp", addr.String(), func(p *pipeline.Pipeline) error {
		return p.AddLast("printer", printer{})
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := ref.TryWrite([]byte("hello")); err != nil {
		log.Fatal(err)
	}
	<-ref.Closed()
	// Output: received hello
}

func ExampleSet() {
	srv := weir.Server{Loops: 2, Logger: quiet()}
	everybody := weir.Set{Server: &srv}
	srv.Init = func(p *pipeline.Pipeline) error { return p.AddLast("everybody", &everybody) }
	addr, err := srv.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	a, err := net.Dial("tcp", addr.String())
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	for everybody.Len() < 1 {
		sleepABit()
	}
	if err := everybody.Broadcast([]byte("hello, everybody\n")); err != nil {
		log.Fatal(err)
	}
	line, err := bufio.NewReader(a).ReadString('\n')
	fmt.Print(line, err)
	// Output:
	// hello, everybody
	// <nil>
}
