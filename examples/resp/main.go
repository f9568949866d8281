// Resp is an in-memory server that speaks the protocol of Redis: strings, lists, sets and hashes under keys that may
// expire. Try it with redis-cli and redis-benchmark.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/examples/resp/internal/command"
	"github.com/weirnet/weir/examples/resp/internal/store"
	"github.com/weirnet/weir/handlers/codec/resp"
	"github.com/weirnet/weir/pipeline"
)

const (
	// expireEvery and expireKeys bound the work on keys that have expired and that nobody looks at.
	expireEvery = 100 * time.Millisecond
	expireKeys  = 10_000
	// shutdownTimeout is how long clients may take to read their last replies.
	shutdownTimeout = 5 * time.Second
)

func main() {
	addr := flag.String("addr", "127.0.0.1:6380", "address to listen on")
	transport := flag.String("transport", "auto", "auto, epoll or uring")
	loops := flag.Int("loops", 0, "number of event loops; 0: one per processor")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	srv, st, err := newServer(weir.Kind(*transport), *loops)
	if err != nil {
		log.Fatal(err)
	}
	go expire(ctx, st)
	go func() {
		<-ctx.Done()
		stop() // a second signal ends the process at once
		limit, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if err := srv.Shutdown(limit); err != nil {
			log.Print(err)
		}
	}()
	at, err := srv.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("serving on %v", at)
	if err := srv.Wait(); !errors.Is(err, weir.ErrServerClosed) {
		log.Fatal(err)
	}
}

// newServer makes a server whose loops share one store.
func newServer(transport weir.Kind, loops int) (*weir.Server, *store.Store, error) {
	st, err := store.New(store.Config{})
	if err != nil {
		return nil, nil, err
	}
	commands, err := command.New(st)
	if err != nil {
		return nil, nil, err
	}
	return &weir.Server{
		Transport: transport,
		Loops:     loops,
		Init:      func(p *pipeline.Pipeline) error { return addHandlers(p, commands) },
	}, st, nil
}

// addHandlers makes p the pipeline of one client.
func addHandlers(p *pipeline.Pipeline, commands *command.Set) error {
	decoder, err := resp.NewCommandBatchDecoder(resp.Config{})
	if err != nil {
		return err
	}
	if err := p.AddLast("decoder", decoder); err != nil {
		return err
	}
	return p.AddLast("commands", &handler{session: commands.NewSession()})
}

// expire removes keys in the background until ctx is done.
func expire(ctx context.Context, st *store.Store) {
	for tick := time.NewTicker(expireEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			st.Expire(expireKeys)
		}
	}
}
