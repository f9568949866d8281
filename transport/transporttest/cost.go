package transporttest

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// pair is a connection both of whose ends belong to one transport.
type pair struct {
	testing.TB
	tr   transport.Transport
	ends [2]transport.Handle
	dst  []transport.Completion
	bufs []*buffer.Buf // the message
	size int           // its bytes
}

func newPair(tb testing.TB, tr transport.Transport, network, address string) *pair {
	tb.Helper()
	p := &pair{TB: tb, tr: tr, dst: make([]transport.Completion, 0, 256)}
	l, err := tr.Listen(transport.ListenConfig{Network: network, Address: address})
	p.must(err)
	tr.Submit(transport.Op{Kind: transport.Accept, Handle: l, Token: 1})
	tr.Submit(transport.Op{Kind: transport.Connect, Token: 2, Dial: &transport.DialConfig{
		Network: network, Address: tr.LocalAddr(l).String(),
	}})
	for p.ends[0] == 0 || p.ends[1] == 0 {
		for _, c := range p.wait(-1) {
			p.ends[c.Token-1] = c.Handle
		}
	}
	return p
}

func (p *pair) must(err error) {
	if err != nil {
		p.Fatal(err)
	}
}

func (p *pair) wait(timeout time.Duration) []transport.Completion {
	out, err := p.tr.Wait(p.dst, timeout)
	p.must(err)
	return out
}

// message is the message in pieces of n bytes.
func (p *pair) message(pieces, n int) {
	for range pieces {
		p.bufs = append(p.bufs, buffer.Wrap(make([]byte, n)))
	}
	p.size = pieces * n
}

// pass sends the message from one end to the other, with a Recv of its own.
func (p *pair) pass(from int) {
	p.tr.Submit(transport.Op{Kind: transport.Recv, Handle: p.ends[1-from], Token: 10, Limit: p.size})
	p.tr.Submit(transport.Op{Kind: transport.Send, Handle: p.ends[from], Token: 11, Bufs: p.bufs})
	for open, received := 2, 0; open > 0; {
		for _, c := range p.wait(-1) {
			p.must(c.Err)
			if !c.More {
				open--
			}
			if c.Buf != nil {
				received += c.N
				c.Buf.Release()
			}
		}
		if open == 0 && received != p.size {
			p.Fatalf("%d bytes of %d were received", received, p.size)
		}
	}
}

// AllocatesNothing tests that messages, and pauses of reading, do without allocations, on transports that open opens.
// Leave it out where the build keeps records of Bufs.
func AllocatesNothing(t *testing.T, name string, open func() transport.Transport) {
	for _, network := range []string{"tcp", "unix"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = "@weir-cost-" + name
		}
		for _, pieces := range []int{1, 10} {
			t.Run(fmt.Sprintf("%s/%s/pieces=%d", name, network, pieces), func(t *testing.T) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				p := newPair(t, open(), network, address)
				p.message(pieces, 60/pieces)
				none := func(what string, fn func()) {
					if n := testing.AllocsPerRun(500, fn); n != 0 {
						t.Errorf("%s: %v allocations", what, n)
					}
				}
				none("messages", func() {
					p.pass(0)
					p.pass(1)
					p.tr.Now()
					p.must(p.tr.Wake())
				})
				none("a pause", func() {
					p.tr.Submit(transport.Op{Kind: transport.Recv, Handle: p.ends[0], Token: 10, Limit: 100})
					p.wait(0)
					p.tr.Submit(transport.Op{
						Kind: transport.Cancel, Handle: p.ends[0], Target: transport.Recv,
						Token: 12,
					})
					for ended := 0; ended < 2; {
						ended += len(p.wait(-1))
					}
				})
				if n := p.tr.Pool().Outstanding(); n != 0 {
					t.Errorf("%d Bufs are outstanding", n)
				}
				p.must(p.tr.Close())
			})
		}
	}
}

// BenchmarkMessages is one message from one socket to another of the same transport: what the system calls cost.
func BenchmarkMessages(b *testing.B, open func() transport.Transport) {
	for _, size := range []int{64, 1024, 16384} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p := newPair(b, open(), "tcp", "127.0.0.1:0")
			p.message(1, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				p.pass(0)
			}
			p.must(p.tr.Close())
		})
	}
}
