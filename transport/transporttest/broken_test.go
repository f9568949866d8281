package transporttest

import (
	"net"
	"testing"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// broken is a transport with one thing wrong.
type broken struct {
	*sim.Transport
	kinds map[transport.Token]transport.Kind

	submit func(b *broken, op transport.Op)                                    // instead of Submit
	change func(b *broken, c *transport.Completion) bool                       // of a completion; false: it is swallowed
	batch  func(b *broken, cs []transport.Completion) []transport.Completion   // of all that a Wait hands out
	wait   func(b *broken, dst []transport.Completion, timeout *time.Duration) // before Wait
	now    func(b *broken, now time.Duration) time.Duration                    // instead of Now
	stats  func(s *transport.Stats)                                            // of Stats
	load   func(l *transport.Load)                                             // of Load
	addr   func(b *broken, h transport.Handle) net.Addr                        // instead of LocalAddr
	acked  func(b *broken, h transport.Handle) (uint64, int, error)            // instead of Acked
	listen func(b *broken, cfg *transport.ListenConfig)                        // before Listen
	closed func(b *broken) error                                               // instead of Close
	direct func(b *broken, h transport.Handle, p []*buffer.Buf) (int, error)   // instead of SendNow
	let    func(b *broken, h transport.Handle) (transport.Socket, error)       // instead of HandOver
	take   func(b *broken, s transport.Socket) (transport.Handle, error)       // instead of TakeOver

	// For the functions' own use.
	count  int
	held   []transport.Completion
	memory []byte
	conn   transport.Handle
	tokens map[transport.Token]transport.Token
}

func (b *broken) Submit(op transport.Op) {
	b.kinds[op.Token] = op.Kind
	if b.submit != nil {
		b.submit(b, op)
		return
	}
	b.Transport.Submit(op)
}

func (b *broken) SendNow(h transport.Handle, bufs []*buffer.Buf) (int, error) {
	if b.direct != nil {
		return b.direct(b, h, bufs)
	}
	return b.Transport.SendNow(h, bufs)
}

func (b *broken) Wait(dst []transport.Completion, timeout time.Duration) ([]transport.Completion, error) {
	if b.wait != nil {
		b.wait(b, dst, &timeout)
	}
	old := len(dst)
	out, err := b.Transport.Wait(dst, timeout)
	if b.change != nil {
		kept := out[:old]
		for i := range out[old:] {
			if c := out[old+i]; b.change(b, &c) {
				kept = append(kept, c)
			} else if c.Buf != nil {
				c.Buf.Release()
			}
		}
		out = kept
	}
	if b.batch != nil {
		out = append(out[:old], b.batch(b, out[old:])...)
	}
	return out, err
}

func (b *broken) Now() time.Duration {
	if b.now != nil {
		return b.now(b, b.Transport.Now())
	}
	return b.Transport.Now()
}

func (b *broken) Stats() transport.Stats {
	s := b.Transport.Stats()
	if b.stats != nil {
		b.stats(&s)
	}
	return s
}

func (b *broken) Load() transport.Load {
	l := b.Transport.Load()
	if b.load != nil {
		b.load(&l)
	}
	return l
}

func (b *broken) Acked(h transport.Handle) (uint64, int, error) {
	if b.acked != nil {
		return b.acked(b, h)
	}
	return b.Transport.Acked(h)
}

func (b *broken) LocalAddr(h transport.Handle) net.Addr {
	if b.addr != nil {
		return b.addr(b, h)
	}
	return b.Transport.LocalAddr(h)
}

func (b *broken) Listen(cfg transport.ListenConfig) (transport.Handle, error) {
	if b.listen != nil {
		b.listen(b, &cfg)
	}
	return b.Transport.Listen(cfg)
}

func (b *broken) HandOver(h transport.Handle) (transport.Socket, error) {
	if b.let != nil {
		return b.let(b, h)
	}
	return b.Transport.HandOver(h)
}

func (b *broken) TakeOver(s transport.Socket) (transport.Handle, error) {
	if b.take != nil {
		return b.take(b, s)
	}
	return b.Transport.TakeOver(s)
}

func (b *broken) Close() error {
	if b.closed != nil {
		return b.closed(b)
	}
	return b.Transport.Close()
}

// kind is the kind of the operation that a completion belongs to.
func (b *broken) kind(c *transport.Completion) transport.Kind { return b.kinds[c.Token] }

// every returns true for each nth call.
func (b *broken) every(n int) bool {
	b.count++
	return b.count%n == 0
}

// brokenFactory opens transports that are broken as how says.
func brokenFactory(how broken) Factory {
	return Factory{
		Name: "a broken transport",
		Open: func(_ testing.TB, n int) []transport.Transport {
			w := sim.NewWorld(1, sim.Config{SendNow: true})
			trs := make([]transport.Transport, n)
			for i := range trs {
				b := how
				b.Transport = w.Open()
				b.kinds = map[transport.Token]transport.Kind{}
				b.tokens = map[transport.Token]transport.Token{}
				trs[i] = &b
			}
			return trs
		},
		Features:   Features{Unix: true, IPv6: true, SendFile: true, Lends: true, VirtualTime: true, SendNow: true},
		BlockBytes: 16 << 10,
	}
}

// noOp makes op complete without an error and without an effect.
func (b *broken) noOp(op transport.Op) {
	b.tokens[op.Token] = op.Token
	b.Transport.Submit(transport.Op{Kind: transport.Cancel, Token: op.Token})
}

// noOps completes what noOp swallowed.
func noOps(b *broken, c *transport.Completion) bool {
	if _, swallowed := b.tokens[c.Token]; swallowed {
		delete(b.tokens, c.Token)
		c.Err = nil
	}
	return true
}
