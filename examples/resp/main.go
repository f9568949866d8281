// Resp is an in-memory server that speaks the protocol of Redis, versions 2 and 3: strings, lists, sets and hashes
// under keys that may expire, and transactions. Try it with redis-cli, redis-benchmark and any client.
//
// Replies are those of Redis 7.0, byte for byte, but for what package command leaves out. On the wire it differs on
// purpose:
//
//   - A client that does not read its replies is not read from. What is held for it is the watermark and one reply, so
//     a client that sends more requests than the sockets' buffers take before it reads a reply waits, where Redis would
//     keep all replies in memory. Read while you write. When nothing of a reply has left for a minute, the connection
//     is aborted.
//   - What a transaction queues, how many keys a client watches, and how large a reply gets is bounded.
//   - CLIENT TRACKING, which client-side caches need, is refused as an unknown subcommand. rueidis has its
//     cache on by default and then refuses to connect, with ErrNoCache: set ClientOption.DisableCache.
//   - What looks like a request and is none ends the connection at the first wrong byte (package resp).
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
	"github.com/weirnet/weir/handlers/idle"
	"github.com/weirnet/weir/pipeline"
)

const (
	// expireEvery and expireKeys bound the work on keys that have expired and that nobody looks at.
	expireEvery = 100 * time.Millisecond
	expireKeys  = 10_000
	// shutdownTimeout is how long clients may take to read their last replies.
	shutdownTimeout = 5 * time.Second
	// stallTimeout is how long a client may take to read anything of the replies that wait for it.
	stallTimeout = time.Minute
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
	progress, err := idle.New(idle.Config{Writer: stallTimeout})
	if err != nil {
		return err
	}
	return errors.Join(
		p.AddLast("progress", progress),
		p.AddLast("decoder", decoder),
		p.AddLast("commands", &handler{session: commands.NewSession()}),
	)
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
