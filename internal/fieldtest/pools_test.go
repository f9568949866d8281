//go:build linux

package fieldtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/pipeline"
)

// order is a message of eight bytes, with the Ref of the channel it came by.
type order struct {
	ref pipeline.Ref
	n   uint64
}

// workshop offloads frames of eight bytes to a pool and counts what becomes of them.
type workshop struct {
	pool *offload.Pool
	work func(ctx context.Context, o order) (uint64, error)

	accepted, done, gone atomic.Int64
	wrong                atomic.Int64 // results that were not those of their messages
}

func newWorkshop(t *testing.T, cfg offload.PoolConfig, work func(context.Context, order) (uint64, error)) *workshop {
	pool, err := offload.NewPool(cfg)
	require.NoError(t, err)
	w := &workshop{pool: pool, work: work}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, pool.Close(ctx))
		s := pool.Stats()
		assert.Zero(t, s.Queued+s.QueuedBytes+s.Running+s.Waiting, "left in the pool: %+v", s)
		assert.Equal(t, w.accepted.Load(), w.done.Load(), "each message is done once")
		assert.Zero(t, w.wrong.Load())
	})
	return w
}

func (w *workshop) init(p *pipeline.Pipeline) error {
	frames, err := codec.NewFixedLength(codec.FixedLengthConfig{Bytes: 8})
	if err != nil {
		return err
	}
	var ref pipeline.Ref
	var numbers []uint64 // accepted and not done
	h, err := offload.New(w.pool, offload.Config[*buffer.Buf, order, uint64]{
		Detach: func(b *buffer.Buf) (order, int) {
			n := binary.BigEndian.Uint64(b.Bytes())
			numbers = append(numbers, n)
			w.accepted.Add(1)
			return order{ref, n}, 8
		},
		Work: w.work,
		Done: func(ctx *pipeline.Context, r uint64, err error) error {
			n := numbers[0]
			numbers = numbers[1:]
			w.done.Add(1)
			switch {
			case errors.Is(err, pipeline.ErrClosed):
				w.gone.Add(1)
				return nil
			case err == nil && r != n:
				w.wrong.Add(1)
			}
			if !ctx.Open() {
				return nil
			}
			return ctx.Write(binary.BigEndian.AppendUint64(nil, r))
		},
	})
	if err != nil {
		return err
	}
	return errors.Join(p.AddLast("frames", frames), p.AddLast("work", h), p.AddLast("ref", &hooks{
		active: func(ctx *pipeline.Context) error {
			ref = ctx.Ref()
			return keep(ctx)
		},
	}))
}

// orders returns the numbers low … high-1 as frames.
func orders(low, high int) (out []byte) {
	for n := low; n < high; n++ {
		out = binary.BigEndian.AppendUint64(out, uint64(n))
	}
	return out
}

func TestWorksWhosePeersHaveGoneLeaveNothing(t *testing.T) {
	covers(t, "panjf2000/gnet#672", "panjf2000/gnet#393", "panjf2000/gnet#414")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns, each := scaled(600, 120), 40
		var late atomic.Int64
		pool := offload.PoolConfig{Workers: 4, MaxQueued: 16}
		w := newWorkshop(t, pool, func(ctx context.Context, o order) (uint64, error) {
			if o.n%4 == 0 { // as late as can be
				<-ctx.Done()
				<-o.ref.Closed()
			}
			err := o.ref.TryWrite([]byte("a worker writes by itself"))
			if errors.Is(err, pipeline.ErrClosed) {
				late.Add(1)
			} else if err != nil {
				return 0, err
			}
			_, _ = o.ref.Pending(), o.ref.Writable()
			if o.ref.Execute(func(*pipeline.Context) {}) != nil {
				_ = o.ref.Close()
			}
			return o.n, nil
		})
		// A peer that has reset while the pool is full is not noticed before, nor are works told.
		srv := &weir.Server{Transport: kind, Loops: 2, Channel: channel.Config{PausedCloseTimeout: time.Millisecond}}
		r := newRig(t, srv, w.init)
		require.NoError(t, all(8, func(k int) error {
			for i := range conns / 8 {
				c, err := r.tryDial()
				if err != nil {
					return err
				}
				if _, err = c.Write(orders(1, 1+each)); err == nil && i%2 == 0 {
					_, err = io.ReadFull(c, make([]byte, 10)) // works run
				}
				if err = errors.Join(err, reset(c)); err != nil {
					return fmt.Errorf("%d, %d: %w", k, i, err)
				}
			}
			return nil
		}))
		r.eventually(func() bool { return r.Closed.Load() == int64(conns) }, "all are closed")
		r.settled()
		assert.NotZero(t, late.Load(), "works that found their channel closed")
		assert.NotZero(t, w.gone.Load())
		t.Logf("%d messages, %d without an answer, %d works were late", w.accepted.Load(), w.gone.Load(), late.Load())
	})
}

func TestShutdownWithAPoolLosesNoAnswer(t *testing.T) {
	covers(t, "cloudwego/netpoll#107")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns, each := scaled(300, 60), 20
		gate := make(chan struct{})
		pool := offload.PoolConfig{Workers: 3, MaxQueued: 10_000}
		w := newWorkshop(t, pool, func(_ context.Context, o order) (uint64, error) {
			<-gate
			return o.n, nil
		})
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2}, w.init)
		want := orders(0, each)
		for range conns {
			_, err := r.dial().Write(want)
			require.NoError(t, err)
		}
		r.eventually(func() bool { return w.accepted.Load() == int64(conns*each) }, "all is read")
		down := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			down <- r.Server.Shutdown(ctx)
		}()
		r.eventually(func() bool { // the listener goes when Shutdown has begun
			c, err := r.tryDial()
			if err == nil {
				c.Close()
			}
			return err != nil
		}, "no more connections")
		close(gate)
		require.NoError(t, all(conns, func(i int) error {
			got, err := io.ReadAll(r.clients[i])
			if err != nil || !bytes.Equal(want, got) {
				return fmt.Errorf("client %d: %d bytes of %d, then %w", i, len(got), len(want), err)
			}
			return r.clients[i].Close()
		}))
		require.NoError(t, receive(t, down, "Shutdown's answer"))
	})
}

func TestWorksThatTakeAllProcessorsDoNotStopTheLoops(t *testing.T) {
	covers(t, "cloudwego/netpoll#109")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		trips := scaled(12, 6)
		var stop atomic.Bool
		w := newWorkshop(t, offload.PoolConfig{}, func(_ context.Context, o order) (uint64, error) {
			for x := o.n; !stop.Load(); {
				for range 1 << 16 {
					x = x*6364136223846793005 + 1
				}
			}
			return o.n, nil
		})
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2}, func(p *pipeline.Pipeline) error {
			if err := p.AddLast("first", &hooks{read: func(ctx *pipeline.Context, b *buffer.Buf) error {
				if b.Len() != 8 { // is answered by the loop
					return ctx.Write(b)
				}
				ctx.FireRead(b)
				return nil
			}}); err != nil {
				return err
			}
			return w.init(p)
		})
		busy := make([]net.Conn, 40)
		for i := range busy {
			busy[i] = r.dial()
			_, err := busy[i].Write(orders(i, i+1))
			require.NoError(t, err)
		}
		r.eventually(func() bool { return w.accepted.Load() == int64(len(busy)) }, "all is read")
		c := r.dial()
		for i := range trips {
			require.NoError(t, ping(c, fmt.Sprint("round trip ", i)))
		}
		assert.Zero(t, w.done.Load(), "while no work has ended")
		stop.Store(true)
		for i, c := range busy {
			got := make([]byte, 8)
			_, err := io.ReadFull(c, got)
			require.NoError(t, err)
			assert.Equal(t, orders(i, i+1), got)
		}
	})
}
