package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// node is a transport with what came back from it.
type node struct {
	*sim.Transport
	t    testing.TB
	next transport.Token
	done map[transport.Token]transport.Completion // last completions
	data map[transport.Token][]byte
	ops  map[transport.Token]transport.Op
	new  []transport.Handle // accepted
	held []*buffer.Buf
	hold bool
	seen func(transport.Completion)
}

func open(t testing.TB, w *sim.World) *node {
	return &node{
		Transport: w.Open(), t: t, ops: map[transport.Token]transport.Op{}, done: map[transport.Token]transport.Completion{}, data: map[transport.Token][]byte{},
	}
}

func (n *node) submit(op transport.Op) transport.Token {
	n.next++
	op.Token = n.next
	n.ops[op.Token] = op
	n.Submit(op)
	return op.Token
}

// cancel ends the operation with a token, which was submitted by submit.
func (n *node) cancel(token transport.Token) transport.Token {
	op := n.ops[token]
	return n.submit(transport.Op{Kind: transport.Cancel, Handle: op.Handle, Target: op.Kind, ConnectToken: token})
}

// wait waits once and files what comes.
func (n *node) wait(timeout time.Duration) []transport.Completion {
	n.t.Helper()
	out, err := n.Wait(nil, timeout)
	require.NoError(n.t, err)
	for _, c := range out {
		if n.seen != nil {
			n.seen(c)
		}
		if c.Buf != nil {
			n.data[c.Token] = append(n.data[c.Token], c.Buf.Bytes()...)
			if n.hold {
				n.held = append(n.held, c.Buf)
			} else {
				c.Buf.Release()
			}
		}
		if c.Handle != 0 && c.More {
			n.new = append(n.new, c.Handle)
		}
		if !c.More {
			n.done[c.Token] = c
		}
	}
	return out
}

// run turns the nodes round and round until cond holds or nothing will ever happen.
func run(w *sim.World, cond func() bool, nodes ...*node) bool {
	for idle := w.Idle(); !cond(); {
		for _, n := range nodes {
			n.wait(-1)
		}
		if w.Idle() > idle {
			return cond()
		}
	}
	return true
}

// ended turns the nodes until the operation of the first has its last completion, and returns that.
func ended(w *sim.World, token transport.Token, nodes ...*node) transport.Completion {
	n := nodes[0]
	n.t.Helper()
	ok := run(w, func() bool { _, ok := n.done[token]; return ok }, nodes...)
	require.True(n.t, ok, "operation %d never ends", token)
	return n.done[token]
}

const address = "10.0.0.1:80"

func (n *node) listen(cfg transport.ListenConfig) transport.Handle {
	n.t.Helper()
	cfg.Network, cfg.Address = "tcp", address
	h, err := n.Listen(cfg)
	require.NoError(n.t, err)
	return h
}

func (n *node) dial() transport.Token {
	return n.submit(transport.Op{
		Kind: transport.Connect, Dial: &transport.DialConfig{Network: "tcp", Address: address},
	})
}

// connect returns the two ends of a new connection; the listener stays open.
func connect(w *sim.World, client, server *node) (c, s transport.Handle) {
	client.t.Helper()
	ln := server.listen(transport.ListenConfig{})
	server.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	got := ended(w, client.dial(), client, server)
	require.NoError(client.t, got.Err)
	require.True(client.t, run(w, func() bool { return len(server.new) == 1 }, client, server))
	return got.Handle, server.new[0]
}

func (n *node) recv(h transport.Handle, limit int) transport.Token {
	return n.submit(transport.Op{Kind: transport.Recv, Handle: h, Limit: limit})
}

func (n *node) send(h transport.Handle, p []byte) transport.Token {
	return n.submit(transport.Op{Kind: transport.Send, Handle: h, Bufs: []*buffer.Buf{buffer.Wrap(p)}})
}

func (n *node) close(h transport.Handle) transport.Token {
	return n.submit(transport.Op{Kind: transport.Close, Handle: h})
}

func bytesOf(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i * 31 >> 3)
	}
	return p
}

func wrap(p []byte) []*buffer.Buf { return []*buffer.Buf{buffer.Wrap(p)} }
