package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"time"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/examples/ingest/internal/sink"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// What a server ends with; wrapped with what there is to say.
var (
	// errDrain: not everything was delivered in the time that there was.
	errDrain = errors.New("drain: gave up")
	// errLost: the sink had no room for frames.
	errLost = errors.New("ingest: frames lost")
	// errNoListener: all listeners have ended by themselves.
	errNoListener = errors.New("ingest: no listener is left")
)

// server is the listeners, the queue and the sink. Any goroutine may call its methods.
type server struct {
	cfg       *config
	where     string // of the sink
	files     []*sink.File
	logger    *slog.Logger
	weir      *weir.Server
	level     *watermark.Shared
	queue     *sink.Queue
	throttle  *sink.Throttle
	pool      *offload.Pool
	listeners []*listener
	ended     chan error // of each listener, when it has ended by itself
	lag       *lag
}

// newServer listens.
func newServer(cfg *config, logger *slog.Logger) (s *server, err error) {
	if cfg.memory > 0 {
		debug.SetMemoryLimit(int64(cfg.memory))
	}
	logger = limitLog(logger)
	s = &server{cfg: cfg, logger: logger}
	s.level, err = watermark.NewShared(watermark.SharedConfig{HighBytes: int64(cfg.high), LowBytes: int64(cfg.low)})
	if err != nil {
		return nil, err
	}
	if s.pool, err = offload.NewPool(offload.PoolConfig{Workers: cfg.workers}); err != nil {
		return nil, err
	}
	if err := s.openSink(logger); err != nil {
		return nil, err
	}
	listeners := byAddress{}
	s.weir = &weir.Server{
		Transport: cfg.transport, Loops: cfg.loops, Logger: logger,
		Channel: channel.Config{PausedCloseTimeout: cfg.pausedClose},
		Socket:  transport.SocketConfig{ReceiveBufferBytes: int(cfg.receiveBuffer)},
		Init: func(p *pipeline.Pipeline) error {
			at := p.LocalAddr()
			l := listeners.find(at)
			if l == nil {
				return fmt.Errorf("ingest: nobody listens at %v", at)
			}
			return l.addHandlers(p)
		},
	}
	var sockets []net.Listener
	listen := net.ListenConfig{Control: setReceiveBuffer(int(cfg.receiveBuffer))}
	for _, p := range protocols() {
		if cfg.addresses[p.name] == "" {
			continue
		}
		socket, err := listen.Listen(context.Background(), "tcp", cfg.addresses[p.name])
		if err != nil {
			for _, socket := range sockets {
				_ = socket.Close()
			}
			return nil, errors.Join(err, s.queue.Close(context.Background()))
		}
		l := s.newListener(p, logger)
		l.address = socket.Addr().String()
		listeners[addrPort(socket.Addr())] = l
		sockets = append(sockets, socket)
		s.listeners = append(s.listeners, l)
	}
	// All are known before the first client comes.
	s.ended = make(chan error, len(sockets))
	for _, socket := range sockets {
		go func() {
			if err := s.weir.Serve(socket); !errors.Is(err, weir.ErrServerClosed) {
				logger.Error("listener ended", "address", socket.Addr(), "error", err)
				s.ended <- err
			}
		}()
	}
	s.lag = newLag()
	return s, nil
}

func (s *server) newListener(p protocol, logger *slog.Logger) *listener {
	cfg := s.cfg
	lossy := slices.Contains(cfg.lossyNames(), p.name)
	return &listener{
		protocol: p, lossy: lossy, unescaped: !cfg.escape, maxFrameBytes: int(cfg.frame),
		batchBytes: int(cfg.batch), maxInFlight: cfg.inFlight,
		drainLimit: cfg.drain / 2,
		watermark: watermark.Config{
			BudgetBytes: int(cfg.grant), RateBytesPerSecond: int64(cfg.rate),
			Shared: []*watermark.Shared{s.level}, KeepReading: lossy,
			Stats: &watermark.Stats{},
		},
		level: s.level, queue: s.queue, pool: s.pool, batches: &batches{}, logger: logger,
	}
}

// allEnded waits until no listener is left, and returns why, or until ctx is done.
func (s *server) allEnded(ctx context.Context) error {
	for left := len(s.listeners); ; {
		select {
		case err := <-s.ended:
			if left--; left == 0 {
				return fmt.Errorf("%w: %w", errNoListener, err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// close stops listening, reads what has come, decodes it and stores it, for a time at most, and until giveUp is done.
func (s *server) close(giveUp context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(giveUp, limit)
	defer cancel()
	defer context.AfterFunc(giveUp, func() { // at once: to give up may take its time, too
		stats := s.queue.Stats()
		s.logger.Error("a second signal: what is not delivered is lost", "records", stats.QueuedRecords,
			"bytes", stats.QueuedBytes)
	})()
	left := s.weir.Shutdown(ctx)
	s.lag.stop()
	err := errors.Join(left, s.pool.Close(ctx), s.queue.Close(ctx))
	if err == nil || ctx.Err() == nil {
		return err
	}
	stats := s.queue.Stats()
	why := "after " + limit.String()
	if giveUp.Err() != nil {
		why = "after a second signal"
	}
	err = fmt.Errorf("%w %s: %d records, %d bytes not delivered", errDrain, why, stats.QueuedRecords, stats.QueuedBytes)
	if left != nil {
		err = fmt.Errorf("%w, clients were cut off", err)
	}
	if stats.Failing != nil && !errors.Is(stats.Failing, context.Canceled) {
		err = fmt.Errorf("%w: %w", err, stats.Failing)
	}
	return err
}

// at returns the address of a protocol's listener.
func (s *server) at(protocol string) string {
	for _, l := range s.listeners {
		if l.protocol.name == protocol {
			return l.address
		}
	}
	return ""
}
