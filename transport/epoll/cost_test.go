//go:build linux

package epoll

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/transport"
)

// pair is a connection both of whose ends belong to one transport, with a message going round.
type pair struct {
	tr   *Transport
	a, b transport.Handle
	dst  []transport.Completion
	bufs []*buffer.Buf
}

func newPair(tb testing.TB, cfg Config, network, address string) *pair {
	tr, err := Open(cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { tr.Close() })
	p := &pair{tr: tr, dst: make([]transport.Completion, 0, 256)}
	l, err := tr.Listen(transport.ListenConfig{Network: network, Address: address})
	require.NoError(tb, err)
	tr.Submit(transport.Op{Kind: transport.Accept, Handle: l, Token: 1})
	tr.Submit(transport.Op{Kind: transport.Connect, Token: 2, Dial: &transport.DialConfig{
		Network: network, Address: tr.LocalAddr(l).String(),
	}})
	for p.a == 0 || p.b == 0 {
		out, err := tr.Wait(p.dst, -1)
		require.NoError(tb, err)
		for _, c := range out {
			require.NoError(tb, c.Err)
			if c.Token == 1 {
				p.a = c.Handle
			} else {
				p.b = c.Handle
			}
		}
	}
	return p
}

// pass sends the message, size bytes, from a to b with a Recv of its own.
func (p *pair) pass(tb testing.TB, a, b transport.Handle, size int) {
	p.tr.Submit(transport.Op{Kind: transport.Recv, Handle: b, Token: 10, Limit: size})
	p.tr.Submit(transport.Op{Kind: transport.Send, Handle: a, Token: 11, Bufs: p.bufs})
	for sent, received := false, 0; !sent || received < size; {
		out, err := p.tr.Wait(p.dst, -1)
		if err != nil {
			tb.Fatal(err)
		}
		for i := range out {
			c := &out[i]
			if c.Err != nil {
				tb.Fatal(c.Err)
			}
			if c.Token == 11 {
				sent = !c.More
				continue
			}
			received += c.N
			c.Buf.Release()
		}
	}
}

func TestAMessageAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds keep records of Bufs")
	}
	for _, network := range []string{"tcp", "unix"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = "@weir-epoll-cost"
		}
		for _, pieces := range []int{1, 10} {
			for _, raw := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/pieces=%d/raw=%v", network, pieces, raw), func(t *testing.T) {
					p := newPair(t, Config{Raw: raw}, network, address)
					for range pieces {
						p.bufs = append(p.bufs, buffer.Wrap(make([]byte, 64/pieces)))
					}
					size := pieces * (64 / pieces)
					allocs := testing.AllocsPerRun(200, func() {
						p.pass(t, p.a, p.b, size)
						p.pass(t, p.b, p.a, size)
						p.tr.Now()
						if err := p.tr.Wake(); err != nil {
							t.Fatal(err)
						}
					})
					require.Zero(t, allocs)
					require.Zero(t, p.tr.Pool().Outstanding())
				})
			}
		}
	}
}

func TestAPauseAllocatesNothing(t *testing.T) {
	p := newPair(t, Config{}, "tcp", "127.0.0.1:0")
	turn := func() {
		if _, err := p.tr.Wait(p.dst, 0); err != nil {
			t.Fatal(err)
		}
	}
	allocs := testing.AllocsPerRun(200, func() {
		p.tr.Submit(transport.Op{Kind: transport.Recv, Handle: p.a, Token: 10, Limit: 100})
		turn()
		p.tr.Submit(transport.Op{Kind: transport.Cancel, Handle: p.a, Target: transport.Recv, Token: 12})
		turn()
		turn()
	})
	require.Zero(t, allocs)
}

// BenchmarkMessage is one message from one socket to another of the same transport, and what the two system calls and
// the wait cost.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{64, 1024, 16384} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			p := newPair(b, Config{Raw: true}, "tcp", "127.0.0.1:0")
			p.bufs = []*buffer.Buf{buffer.Wrap(make([]byte, size))}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				p.pass(b, p.a, p.b, size)
			}
		})
	}
}

// BenchmarkTurn is what the transport itself costs: a Wait for completions that Submit left.
func BenchmarkTurn(b *testing.B) {
	p := newPair(b, Config{}, "tcp", "127.0.0.1:0")
	b.ReportAllocs()
	for b.Loop() {
		p.tr.Submit(transport.Op{Kind: transport.Recv, Handle: p.a, Token: 10, Limit: 1 << 18})
		p.tr.Submit(transport.Op{Kind: transport.Cancel, Handle: p.a, Target: transport.Recv, Token: 12})
		p.tr.passed = false
		if _, err := p.tr.Wait(p.dst, 0); err != nil {
			b.Fatal(err)
		}
	}
}
