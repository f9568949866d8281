//go:build linux

package uring

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/transport"
)

// pair is a connection both of whose ends belong to one transport.
type pair struct {
	tr   *Transport
	a, b transport.Handle
	dst  []transport.Completion
	bufs []*buffer.Buf
}

const (
	tokenAccept = iota + 1
	tokenConnect
	tokenRecvA
	tokenRecvB
	tokenSend
)

func newPair(tb testing.TB, cfg Config, network, address string) *pair {
	tb.Helper()
	p := &pair{tr: openTest(tb, cfg), dst: make([]transport.Completion, 0, 256)}
	l, err := p.tr.Listen(transport.ListenConfig{Network: network, Address: address})
	require.NoError(tb, err)
	p.tr.Submit(transport.Op{Kind: transport.Accept, Handle: l, Token: tokenAccept})
	p.tr.Submit(transport.Op{Kind: transport.Connect, Token: tokenConnect, Dial: &transport.DialConfig{
		Network: network, Address: p.tr.LocalAddr(l).String(),
	}})
	for p.a == 0 || p.b == 0 {
		out, err := p.tr.Wait(p.dst, -1)
		require.NoError(tb, err)
		for _, c := range out {
			require.NoError(tb, c.Err)
			if c.Token == tokenAccept {
				p.a = c.Handle
			} else {
				p.b = c.Handle
			}
		}
	}
	p.tr.Submit(transport.Op{Kind: transport.Recv, Handle: p.a, Token: tokenRecvA, Limit: 1 << 50})
	p.tr.Submit(transport.Op{Kind: transport.Recv, Handle: p.b, Token: tokenRecvB, Limit: 1 << 50})
	return p
}

// pass sends size bytes from one end to the other.
func (p *pair) pass(tb testing.TB, from transport.Handle, size int) {
	p.tr.Submit(transport.Op{Kind: transport.Send, Handle: from, Token: tokenSend, Bufs: p.bufs})
	for sent, received := false, 0; !sent || received < size; {
		out, err := p.tr.Wait(p.dst, -1)
		if err != nil {
			tb.Fatal(err)
		}
		for i := range out {
			c := &out[i]
			switch {
			case c.Err != nil:
				tb.Fatal(c.Err)
			case c.Token == tokenSend:
				sent = !c.More
			default:
				received += c.N
				c.Buf.Release()
			}
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
			address = "@weir-uring-cost"
		}
		for _, without := range []Features{0, ^Features(0)} {
			for _, pieces := range []int{1, 10} {
				t.Run(fmt.Sprintf("%s/pieces=%d/without=%d", network, pieces, without), func(t *testing.T) {
					p := newPair(t, Config{Raw: true, Without: without}, network, address)
					for range pieces {
						p.bufs = append(p.bufs, buffer.Wrap(make([]byte, 60/pieces)))
					}
					allocs := testing.AllocsPerRun(2000, func() {
						p.pass(t, p.a, 60)
						p.pass(t, p.b, 60)
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
	turn()
	require.Zero(t, testing.AllocsPerRun(500, func() {
		p.tr.Submit(transport.Op{Kind: transport.Cancel, Handle: p.a, Target: transport.Recv, Token: 12})
		turn()
		turn()
		p.tr.Submit(transport.Op{Kind: transport.Recv, Handle: p.a, Token: tokenRecvA, Limit: 1 << 50})
		turn()
	}))
}

// BenchmarkMessage is one message from one socket to another of the same transport.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{64, 1024, 16384} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			p := newPair(b, Config{Raw: true}, "tcp", "127.0.0.1:0")
			p.bufs = []*buffer.Buf{buffer.Wrap(make([]byte, size))}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				p.pass(b, p.a, size)
			}
		})
	}
}
