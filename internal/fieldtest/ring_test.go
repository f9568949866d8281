//go:build linux

package fieldtest

import (
	"context"
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
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/uring"
)

// ringRig is a loop on an io_uring of a size of its own, which a Server does not let choose.
type ringRig struct {
	t       *testing.T
	group   *loop.Group
	loop    *loop.Loop
	address string

	accepted, closed atomic.Int64
}

func newRingRig(t *testing.T, cfg uring.Config, init func(*pipeline.Pipeline) error) *ringRig {
	servertest.Need(t, weir.Uring)
	servertest.Balance(t)
	r := &ringRig{t: t}
	var pool *buffer.Pool
	var err error
	r.group, err = loop.NewGroup(1, func(int) loop.Config {
		return loop.Config{Logger: quiet(), Open: func(bool) (transport.Transport, error) {
			tr, err := uring.Open(cfg)
			if err == nil {
				pool = tr.Pool()
			}
			return tr, err
		}}
	})
	require.NoError(t, err)
	require.NoError(t, r.group.Start())
	r.loop = r.group.Loop(0)
	t.Cleanup(func() {
		r.group.Stop()
		assert.NoError(t, r.group.Wait(context.Background()))
		assert.Zero(t, pool.Outstanding(), "buffers")
		assert.Equal(t, r.accepted.Load(), r.closed.Load(), "channels that were closed")
	})
	listening := make(chan error, 1)
	require.NoError(t, r.loop.Execute(func() {
		ln, err := channel.Listen(r.loop, channel.ListenerConfig{
			Transport: transport.ListenConfig{Network: "tcp", Address: "127.0.0.1:0"},
			Channel:   &channel.Config{Init: init, Closed: func(*channel.Channel) { r.closed.Add(1) }},
			Accepted:  func(*channel.Channel, any) { r.accepted.Add(1) },
		})
		if err == nil {
			r.address = ln.Addr().String()
		}
		listening <- err
	}))
	require.NoError(t, receive(t, listening, "the listener"))
	return r
}

// counters returns what the ring has done.
func (r *ringRig) counters() (c uring.Counters, st transport.Stats) {
	r.t.Helper()
	got := make(chan struct{})
	require.NoError(r.t, r.loop.Execute(func() {
		c, st = r.loop.Transport().(*uring.Transport).Counters(), r.loop.Transport().Stats()
		close(got)
	}))
	receive(r.t, got, "the counters")
	return c, st
}

func (r *ringRig) dial() (net.Conn, error) {
	c, err := net.DialTimeout("tcp", r.address, patience)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(2 * patience))
}

func TestATinyRingAcceptsAndServesAll(t *testing.T) {
	covers(t, "netty/netty#14819", "netty/netty#15502")
	conns, atOnce := scaled(10_000, 1000), 100
	r := newRingRig(t, uring.Config{Entries: 8, CompletionEntries: 16, Blocks: 8, BlockBytes: 4 << 10}, initEcho)
	gate := make(chan struct{})
	require.NoError(t, r.loop.Execute(func() { <-gate })) // the first hundred come at once
	early := make([]net.Conn, atOnce)
	for i := range early {
		c, err := r.dial()
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "x")
		require.NoError(t, err)
		early[i] = c
	}
	close(gate)
	for i, c := range early {
		_, err := io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err, "connection %d", i)
		require.NoError(t, c.Close())
	}
	require.NoError(t, all(8, func(k int) error {
		for i := range conns / 8 {
			c, err := r.dial()
			if err != nil {
				return err
			}
			err = ping(c, fmt.Sprintf("client %d, connection %d", k, i))
			if err = errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		return nil
	}))
	c, _ := r.counters()
	t.Logf("%+v", c)
	assert.Zero(t, c.Lost)
}

func TestAnExhaustedBufferRingParksAndLosesNothing(t *testing.T) {
	covers(t, "axboe/liburing#1275")
	conns, size := scaled(200, 50), 200_000
	r := newRingRig(t, uring.Config{Blocks: 2, BlockBytes: 1 << 10}, initEcho)
	clients := make([]net.Conn, conns)
	for i := range clients {
		c, err := r.dial()
		require.NoError(t, err)
		defer c.Close()
		clients[i] = c
	}
	require.NoError(t, all(conns, func(i int) error {
		data, sent := stream(uint64(i), size), make(chan error, 1)
		go func() {
			_, err := clients[i].Write(data)
			sent <- err
		}()
		got := make([]byte, size)
		if _, err := io.ReadFull(clients[i], got); err != nil {
			return err
		}
		if string(got) != string(data) {
			return fmt.Errorf("client %d: wrong bytes", i)
		}
		return <-sent
	}))
	c, st := r.counters()
	t.Logf("%+v", c)
	assert.NotZero(t, c.BufferRingEmpty, "it was empty")
	last := st.Waits
	eventually(t, func() bool {
		time.Sleep(20 * time.Millisecond)
		_, st := r.counters()
		rest := st.Waits-last <= handful
		last = st.Waits
		return rest
	}, "the loop comes to rest")
	time.Sleep(200 * time.Millisecond) // a window, as in asleep
	c2, st2 := r.counters()
	assert.Zero(t, c2.Parked, "nobody waits any more")
	assert.LessOrEqual(t, st2.Waits-last, uint64(handful), "idle receives that wait for no block don't spin")
	assert.LessOrEqual(t, c2.BufferRingEmpty-c.BufferRingEmpty, uint64(conns), "useless completions")
}
