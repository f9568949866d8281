// Chat is a line-based chat room: everybody gets every line. Try it with several terminals: nc 127.0.0.1 9001.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weirnet/weir"
)

func main() {
	srv := newServer()
	addr := flag.String("addr", "127.0.0.1:9001", "address to listen on")
	flag.StringVar((*string)(&srv.Transport), "transport", "auto", "auto, epoll or uring")
	flag.IntVar(&srv.Loops, "loops", 0, "number of event loops; 0: one per processor")
	flag.Parse()

	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		<-interrupted.Done()
		stop() // the next signal ends the program at once
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			log.Print(err)
		}
	}()
	at, err := srv.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("chatting on %v", at)
	if err := srv.Wait(); !errors.Is(err, weir.ErrServerClosed) {
		log.Fatal(err)
	}
}
