//go:build linux

package uring

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/transport"
)

const patience = 20 * time.Second

// openTest opens a transport on this goroutine's thread, which it locks, and closes it when the test ends.
func openTest(tb testing.TB, cfg Config) *Transport {
	tb.Helper()
	runtime.LockOSThread()
	tr, err := Open(cfg)
	testenv.Require(tb, "uring", err)
	tb.Cleanup(func() {
		if !tr.closed {
			require.NoError(tb, tr.Close())
		}
		runtime.UnlockOSThread()
	})
	return tr
}

// driver drives one transport from the test's goroutine. Its peers are Go's net: another implementation.
type driver struct {
	testing.TB
	tr     *Transport
	calls  map[transport.Token]*call
	batch  []transport.Completion
	serial uint32
}

// call is an operation and what became of it.
type call struct {
	op    transport.Op
	n     int
	data  []byte
	conns []transport.Completion
	done  bool
	err   error
}

func drive(tb testing.TB, cfg Config) *driver {
	tb.Helper()
	return &driver{
		TB: tb, tr: openTest(tb, cfg), calls: map[transport.Token]*call{},
		batch: make([]transport.Completion, 0, 256),
	}
}

func (d *driver) submit(op transport.Op) *call {
	d.serial++
	op.Token = transport.MakeToken(d.serial, 1, uint8(op.Kind))
	c := &call{op: op}
	d.calls[op.Token] = c
	d.tr.Submit(op)
	return c
}

func (d *driver) recv(h transport.Handle, limit int) *call {
	return d.submit(transport.Op{Kind: transport.Recv, Handle: h, Limit: limit})
}

func (d *driver) send(h transport.Handle, pieces ...[]byte) *call {
	bufs := make([]*buffer.Buf, len(pieces))
	for i, p := range pieces {
		bufs[i] = buffer.Wrap(p)
	}
	return d.submit(transport.Op{Kind: transport.Send, Handle: h, Bufs: bufs})
}

func (d *driver) close(h transport.Handle) *call {
	return d.submit(transport.Op{Kind: transport.Close, Handle: h})
}

func (d *driver) cancel(c *call) *call {
	return d.submit(transport.Op{
		Kind: transport.Cancel, Handle: c.op.Handle, Target: c.op.Kind, ConnectToken: c.op.Token,
	})
}

// wait is one Wait. It returns how many completions came.
func (d *driver) wait(timeout time.Duration) int {
	d.Helper()
	out, err := d.tr.Wait(d.batch[:0], timeout)
	require.NoError(d, err)
	for i := range out {
		c := &out[i]
		m := d.calls[c.Token]
		require.NotNil(d, m, "a completion after the last one: %+v", *c)
		m.n += c.N
		if c.Buf != nil {
			m.data = append(m.data, c.Buf.Bytes()...)
			c.Buf.Release()
		}
		if c.Handle != 0 {
			m.conns = append(m.conns, *c)
		}
		if !c.More {
			m.done, m.err = true, c.Err
			delete(d.calls, c.Token)
		}
	}
	return len(out)
}

func (d *driver) until(what string, cond func() bool) {
	d.Helper()
	for deadline := time.Now().Add(patience); !cond(); {
		if time.Now().After(deadline) {
			d.Fatalf("waited in vain for %s: %+v %+v", what, d.tr.Stats(), d.tr.Counters())
		}
		d.wait(5 * time.Millisecond)
	}
}

func (d *driver) done(calls ...*call) {
	d.Helper()
	d.until("the end of operations", func() bool {
		for _, c := range calls {
			if !c.done {
				return false
			}
		}
		return true
	})
}

// quiet waits until nothing comes any more.
func (d *driver) quiet() {
	for idle := 0; idle < 3; idle++ {
		if d.wait(time.Millisecond) > 0 {
			idle = 0
		}
	}
}

func (d *driver) listen(socket transport.SocketConfig) (transport.Handle, string) {
	d.Helper()
	h, err := d.tr.Listen(transport.ListenConfig{Network: "tcp", Address: "127.0.0.1:0", Socket: socket})
	require.NoError(d, err)
	return h, d.tr.LocalAddr(h).String()
}

// connections returns n connections: the transport's ends and those of package net, in the same order.
func (d *driver) connections(n int, socket transport.SocketConfig) ([]transport.Handle, []*net.TCPConn) {
	d.Helper()
	h, addr := d.listen(socket)
	accept := d.submit(transport.Op{Kind: transport.Accept, Handle: h})
	peers := make([]*net.TCPConn, n)
	at := map[string]int{}
	for i := range peers {
		conn, err := net.Dial("tcp", addr)
		require.NoError(d, err)
		d.Cleanup(func() { conn.Close() })
		peers[i] = conn.(*net.TCPConn)
		at[conn.LocalAddr().String()] = i
		d.until("an accept", func() bool { return len(accept.conns) > i })
	}
	handles := make([]transport.Handle, n)
	for _, c := range accept.conns {
		handles[at[c.Addr.String()]] = c.Handle
	}
	d.done(d.close(h), accept)
	return handles, peers
}

func (d *driver) connection() (transport.Handle, *net.TCPConn) {
	d.Helper()
	handles, peers := d.connections(1, transport.SocketConfig{})
	return handles[0], peers[0]
}

// balanced fails the test when Bufs are outstanding or blocks are missing.
func (d *driver) balanced() {
	d.Helper()
	require.Zero(d, d.tr.Pool().Outstanding(), "%v", d.tr.Pool().Leaks())
	require.Zero(d, d.tr.blocks.lent)
	require.Zero(d, d.tr.Stats().Stale)
}

// pattern returns n bytes that depend on seed and place.
func pattern(seed, n int) []byte {
	p := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range p {
		x = x*1664525 + 1013904223
		p[i] = byte(x >> 24)
	}
	return p
}

// descriptors is the number of the process's open descriptors.
func descriptors(tb testing.TB) int {
	tb.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(tb, err)
	return len(entries)
}
