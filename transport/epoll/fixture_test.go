//go:build linux

package epoll

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

const patience = 10 * time.Second

// fixture drives one transport from the test's goroutine. Peers are Go's net sockets: another implementation.
type fixture struct {
	*testing.T
	tr    *Transport
	calls map[transport.Token]*call
	dst   []transport.Completion
	slot  uint32
}

// call is what became of one operation.
type call struct {
	op    transport.Op
	n     int
	data  []byte
	err   error
	done  bool
	conns []transport.Completion // Accept, Connect
	count int
}

func open(t *testing.T, cfg Config) *fixture {
	t.Helper()
	tr, err := Open(cfg)
	require.NoError(t, err)
	f := &fixture{T: t, tr: tr, calls: map[transport.Token]*call{}, dst: make([]transport.Completion, 0, 256)}
	t.Cleanup(func() { require.NoError(t, tr.Close()) })
	return f
}

func (f *fixture) submit(op transport.Op) *call {
	f.slot++
	op.Token = transport.MakeToken(f.slot, 1, uint8(op.Kind))
	c := &call{op: op}
	f.calls[op.Token] = c
	f.tr.Submit(op)
	return c
}

func (f *fixture) recv(h transport.Handle, limit int) *call {
	return f.submit(transport.Op{Kind: transport.Recv, Handle: h, Limit: limit})
}

func (f *fixture) send(h transport.Handle, p ...[]byte) *call {
	bufs := make([]*buffer.Buf, len(p))
	for i := range p {
		bufs[i] = buffer.Wrap(p[i])
	}
	return f.submit(transport.Op{Kind: transport.Send, Handle: h, Bufs: bufs})
}

func (f *fixture) cancel(c *call) *call {
	return f.submit(transport.Op{
		Kind: transport.Cancel, Handle: c.op.Handle, Target: c.op.Kind, ConnectToken: c.op.Token,
	})
}

func (f *fixture) close(h transport.Handle) *call {
	return f.submit(transport.Op{Kind: transport.Close, Handle: h})
}

// wait is one Wait; it records, and releases, what it hands out.
func (f *fixture) wait(timeout time.Duration) []transport.Completion {
	f.Helper()
	out := f.take(timeout)
	f.release(out)
	return out
}

// take is one Wait that leaves the Bufs to the caller.
func (f *fixture) take(timeout time.Duration) []transport.Completion {
	f.Helper()
	out, err := f.tr.Wait(f.dst[:0], timeout)
	require.NoError(f, err)
	for i := range out {
		f.record(&out[i])
	}
	return out
}

func (f *fixture) record(c *transport.Completion) {
	f.Helper()
	call := f.calls[c.Token]
	require.NotNil(f, call, "completion of an unknown token %x", c.Token)
	require.False(f, call.done, "completion after the last one of %x", c.Token)
	call.n += c.N
	call.count++
	if c.Buf != nil {
		require.Equal(f, c.N, c.Buf.Len())
		call.data = append(call.data, c.Buf.Bytes()...)
	}
	if c.Handle != 0 {
		call.conns = append(call.conns, *c)
	}
	if !c.More {
		call.done, call.err = true, c.Err
	}
}

func (f *fixture) release(out []transport.Completion) {
	for i := range out {
		if b := out[i].Buf; b != nil {
			b.Release()
		}
	}
}

func (f *fixture) until(what string, cond func() bool) {
	f.Helper()
	for deadline := time.Now().Add(patience); !cond(); {
		require.True(f, time.Now().Before(deadline), "waited in vain for: %s", what)
		f.wait(5 * time.Millisecond)
	}
}

func (f *fixture) done(calls ...*call) {
	f.Helper()
	f.until("the end of operations", func() bool {
		for _, c := range calls {
			if !c.done {
				return false
			}
		}
		return true
	})
}

// quiet waits until nothing comes any more.
func (f *fixture) quiet() {
	f.Helper()
	for idle := 0; idle < 3; idle++ {
		if len(f.wait(time.Millisecond)) > 0 {
			idle = 0
		}
	}
}

func (f *fixture) listen(cfg transport.ListenConfig) (transport.Handle, net.Addr) {
	f.Helper()
	if cfg.Listener == nil && cfg.Network == "" {
		cfg.Network, cfg.Address = "tcp", "127.0.0.1:0"
	}
	h, err := f.tr.Listen(cfg)
	require.NoError(f, err)
	addr := f.tr.LocalAddr(h)
	require.NotNil(f, addr)
	return h, addr
}

// connections returns n connections: the transport's ends and those of package net.
func (f *fixture) connections(n int, cfg transport.ListenConfig) ([]transport.Handle, []net.Conn) {
	f.Helper()
	l, addr := f.listen(cfg)
	accept := f.submit(transport.Op{Kind: transport.Accept, Handle: l})
	peers := make([]net.Conn, n)
	for i := range peers {
		peer, err := net.Dial(addr.Network(), addr.String())
		require.NoError(f, err)
		f.Cleanup(func() { peer.Close() })
		peers[i] = peer
	}
	f.until("connections", func() bool { return len(accept.conns) == n })
	handles := make([]transport.Handle, n)
	for i, c := range accept.conns {
		handles[i] = c.Handle
		for j, peer := range peers { // the order of accepts is the kernel's
			if addr.Network() == "tcp" && peer.LocalAddr().(*net.TCPAddr).AddrPort() == c.Addr {
				handles[j] = c.Handle
			}
		}
	}
	f.done(f.close(l), accept)
	f.quiet()
	return handles, peers
}

// connection returns one connection.
func (f *fixture) connection() (transport.Handle, *net.TCPConn) {
	f.Helper()
	handles, peers := f.connections(1, transport.ListenConfig{})
	return handles[0], peers[0].(*net.TCPConn)
}

// balanced fails the test when Bufs are outstanding.
func (f *fixture) balanced() {
	f.Helper()
	require.Zero(f, f.tr.Pool().Outstanding(), "%v", f.tr.Pool().Leaks())
	require.Zero(f, f.tr.Pool().OutstandingBytes())
}

// fillUp sends until the kernel takes no more and returns the Send in progress.
func (f *fixture) fillUp(h transport.Handle) *call {
	f.Helper()
	send := f.send(h, make([]byte, 64<<20))
	f.until("a full send buffer", func() bool {
		s := f.tr.sockets.lookup(h)
		before := send.n
		f.wait(time.Millisecond)
		return s.is(flagFull) && send.n == before
	})
	require.False(f, send.done)
	return send
}

// descriptors is the number of open descriptors of the process.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// pattern returns n bytes that depend on their place.
func pattern(n int) []byte {
	p := make([]byte, n)
	x := uint32(n)
	for i := range p {
		x = x*1664525 + 1013904223
		p[i] = byte(x >> 24)
	}
	return p
}
