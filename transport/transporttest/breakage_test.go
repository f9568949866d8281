package transporttest

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// breakage is a way to be wrong, and the claims that must notice.
type breakage struct {
	name   string
	how    broken
	killer []string
}

const bothWaysClaim = "bytes arrive complete and in order, in pieces from 1 byte to 1 MiB and in both directions at once"

func breakages() []breakage {
	var all []breakage
	for _, group := range [][]breakage{
		streamBreakages(), dataBreakages(), batchBreakages(), timeBreakages(), limitBreakages(), endBreakages(),
		cancelBreakages(),
		closeBreakages(), staleBreakages(), acceptBreakages(), handOverBreakages(), loadBreakages(), watchBreakages(),
		sendBreakages(), fileBreakages(),
	} {
		all = append(all, group...)
	}
	return all
}

func streamBreakages() []breakage {
	return []breakage{
		{"a last completion is swallowed", broken{
			change: func(b *broken, c *transport.Completion) bool { return c.More || !b.every(5) },
		}, []string{bothWaysClaim, "Cancel ends a Recv, and the next one works"}},
		{"a last completion is doubled", broken{
			batch: func(b *broken, cs []transport.Completion) []transport.Completion {
				if n := len(cs); n > 0 && !cs[n-1].More && cs[n-1].Buf == nil && b.every(3) {
					cs = append(cs, cs[n-1])
				}
				return cs
			},
		}, []string{bothWaysClaim, "Cancel works in the same turn as its target's Submit"}},
		{"a completion comes for a token that was never submitted", broken{
			change: func(b *broken, c *transport.Completion) bool {
				if b.every(7) {
					c.Token ^= 1 << 40
				}
				return true
			},
		}, []string{bothWaysClaim}},
		{"the end of a token is cut off", broken{
			submit: func(b *broken, op transport.Op) {
				b.tokens[op.Token&(1<<60-1)] = op.Token
				op.Token &= 1<<60 - 1
				op.ConnectToken &= 1<<60 - 1
				b.Transport.Submit(op)
			},
		}, []string{"a token of any 64 bits below SlotReserved comes back unchanged"}},
	}
}

func dataBreakages() []breakage {
	return []breakage{
		{"two receives change places", broken{
			batch: func(b *broken, cs []transport.Completion) []transport.Completion {
				if n := len(cs); n > 1 && cs[n-1].Buf != nil && cs[n-2].Buf != nil && cs[n-1].More &&
					cs[n-1].Token == cs[n-2].Token {
					cs[n-1], cs[n-2] = cs[n-2], cs[n-1]
				}
				return cs
			},
		}, []string{bothWaysClaim}},
		{"a byte is lost", broken{change: func(b *broken, c *transport.Completion) bool {
			if c.Buf != nil && c.N > 1 && c.More && b.every(3) {
				c.N--
				c.Buf.Truncate(c.N)
			}
			return true
		}}, []string{bothWaysClaim, "data sent before FIN is delivered before EOF"}},
		{"a byte is changed", broken{change: func(b *broken, c *transport.Completion) bool {
			if c.Buf != nil && b.every(10) {
				c.Buf.Bytes()[c.N/2] ^= 1
			}
			return true
		}}, []string{bothWaysClaim, "many connections do not mix their bytes"}},
		{"a received Buf is not given back", broken{change: func(b *broken, c *transport.Completion) bool {
			if c.Buf != nil && b.every(10) {
				c.Buf.RetainForTurn()
			}
			return true
		}}, []string{bothWaysClaim}},
		{"received memory is used again while it is kept", broken{
			change: func(b *broken, c *transport.Completion) bool {
				if c.Buf == nil {
					return true
				}
				if b.memory != nil {
					b.memory[0]++
				}
				if c.N > 10_000 {
					b.memory = c.Buf.Bytes()
				}
				return true
			},
		}, []string{
			"a received Buf that is retained keeps its bytes while 1000 more are received",
			"keeping all that is received starves no other connection",
		}},
	}
}

func batchBreakages() []breakage {
	return []breakage{
		{"Wait hands out more than there is room for", broken{
			batch: func(b *broken, cs []transport.Completion) []transport.Completion {
				more, _ := b.Transport.Wait(nil, 0)
				return append(cs, more...)
			},
		}, []string{"Wait never hands out more than dst has room for"}},
		{"what does not fit into a batch is lost", broken{
			wait: func(b *broken, dst []transport.Completion, _ *time.Duration) {
				if cap(dst)-len(dst) == 1 && b.every(2) {
					lost, _ := b.Transport.Wait(nil, 0)
					for _, c := range lost {
						if c.Buf != nil {
							c.Buf.Release()
						}
					}
				}
			},
		}, []string{
			"what a full batch leaves comes with the next calls, in order and without loss",
			"what is left over is handed out without entering the kernel",
		}},
		{"Wait forgets what dst held", broken{
			batch: func(_ *broken, cs []transport.Completion) []transport.Completion {
				if len(cs) > 0 {
					clear(cs[:cap(cs)])
				}
				return cs
			},
			wait: func(_ *broken, dst []transport.Completion, _ *time.Duration) { clear(dst) },
		}, []string{"Wait appends to dst and leaves alone what dst holds"}},
	}
}

func timeBreakages() []breakage {
	return []breakage{
		{"each Wait enters the kernel", broken{
			stats: func(s *transport.Stats) { s.Waits = uint64(s.Completions) + s.Waits },
		}, []string{"what is left over is handed out without entering the kernel"}},
		{"Wait returns without reason", broken{
			wait: func(_ *broken, _ []transport.Completion, timeout *time.Duration) {
				*timeout = min(*timeout, 10*time.Microsecond)
			},
		}, []string{
			"a Send that is blocked does not spin",
			"a socket that nobody receives on does not spin, whatever the peer does",
			"a listener without an Accept accepts nothing and does not spin",
		}},
		{"Now is read anew each time", broken{
			now: func(b *broken, now time.Duration) time.Duration {
				b.count++
				return now + time.Duration(b.count)
			},
		}, []string{"Now stays the same between two Waits and never goes back"}},
		{"Now goes back", broken{
			now: func(b *broken, now time.Duration) time.Duration { return now / 1000 * 1000 % (3 * time.Millisecond) },
		}, []string{"Now stays the same between two Waits and never goes back"}},
	}
}

func limitBreakages() []breakage {
	return []breakage{
		{"the limit of a Recv is ignored", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Recv {
				op.Limit = 1 << 40
			}
			b.Transport.Submit(op)
		}}, []string{"a Recv ends at its limit and overshoots it by less than a block"}},
		{"the limit of a Recv is overshot by a block", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Recv && op.Limit < 1<<30 {
				op.Limit += 16 << 10
			}
			b.Transport.Submit(op)
		}}, []string{"a Recv ends at its limit and overshoots it by less than a block"}},
		{"the limit of a Recv is kept in 32 bits", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Recv {
				op.Limit = int(int32(op.Limit))
				op.Limit = max(op.Limit, 1)
			}
			b.Transport.Submit(op)
		}}, []string{"a Recv with an enormous limit is one without end"}},
		{
			"a second Recv takes the place of the first",
			broken{submit: func(b *broken, op transport.Op) {
				if op.Kind == transport.Recv && b.conn == op.Handle {
					b.Transport.Submit(transport.Op{
						Kind: transport.Cancel, Handle: op.Handle, Target: transport.Recv,
						Token: 1<<40 + 1,
					})
				}
				b.conn = op.Handle
				b.held = []transport.Completion{{Token: op.Token}}
				b.Transport.Submit(op)
			}, change: func(_ *broken, c *transport.Completion) bool { return c.Token != 1<<40+1 }},
			[]string{"a second Recv on a socket that has one completes with ErrBusy and leaves the first alone"},
		},
	}
}

func endBreakages() []breakage {
	return []breakage{
		{"the last data before EOF is lost", broken{
			batch: func(_ *broken, cs []transport.Completion) []transport.Completion {
				for i := 1; i < len(cs); i++ {
					if errors.Is(cs[i].Err, io.EOF) && cs[i-1].Buf != nil && cs[i-1].Token == cs[i].Token {
						cs[i-1].Buf.Release()
						return append(cs[:i-1], cs[i:]...)
					}
				}
				return cs
			},
		}, []string{
			"a Recv that is armed after FIN came gets the data, then EOF",
			"WatchClose consumes nothing, and data stays readable after the peer closed",
		}},
		{"a reset looks like EOF", broken{change: func(_ *broken, c *transport.Completion) bool {
			if errors.Is(c.Err, syscall.ECONNRESET) {
				c.Err = io.EOF
			}
			return true
		}}, []string{
			"a reset ends an armed Recv with ECONNRESET",
			"Close with Reset gives the peer ECONNRESET",
			"data received before a reset is delivered before ECONNRESET",
		}},
		{"CloseWrite does nothing", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.CloseWrite {
				b.noOp(op)
				return
			}
			b.Transport.Submit(op)
		}, change: noOps}, []string{"each direction ends by itself", "Send after CloseWrite fails with EPIPE"}},
		{"CloseWrite closes both directions", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.CloseWrite {
				op.Kind = transport.Close
			}
			b.Transport.Submit(op)
		}}, []string{"after CloseWrite a socket still receives", "each direction ends by itself"}},
	}
}

func cancelBreakages() []breakage {
	return []breakage{
		{"Cancel does nothing", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Cancel && op.Handle != 0 {
				b.noOp(op)
				return
			}
			b.Transport.Submit(op)
		}, change: noOps}, []string{
			"Cancel ends a Recv, and the next one works", "Cancel ends a WatchClose",
			"a Send to a peer that never reads can be cancelled, and what went out is a prefix",
		}},
		{"Cancel always says that it found something", broken{change: func(_ *broken, c *transport.Completion) bool {
			if errors.Is(c.Err, transport.ErrNotFound) {
				c.Err = nil
			}
			return true
		}}, []string{"Cancel of what never was, or is over, completes with ErrNotFound"}},
		{"Cancel never says that it found something", broken{change: func(b *broken, c *transport.Completion) bool {
			if b.kind(c) == transport.Cancel {
				c.Err = transport.ErrNotFound
			}
			return true
		}}, []string{
			"Cancel ends a Recv, and the next one works",
			"Cancel works in the same turn as its target's Submit",
		}},
		{
			"Cancel ends whatever its Handle has",
			broken{submit: func(b *broken, op transport.Op) {
				b.Transport.Submit(op)
				if op.Kind == transport.Cancel && op.Target == transport.Recv {
					op.Token, op.Target = 1<<40+1, transport.Send
					b.Transport.Submit(op)
				}
			}, change: func(_ *broken, c *transport.Completion) bool { return c.Token != 1<<40+1 }},
			[]string{"Cancel ends only the operation of its Handle and its kind"},
		},
		{"Cancel takes a file for Bufs", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.SendFile {
				b.conn = op.Handle
			}
			if op.Kind == transport.Cancel && op.Target == transport.Send && op.Handle == b.conn {
				op.Target = transport.SendFile
			}
			b.Transport.Submit(op)
		}}, []string{"Cancel of a Send leaves a SendFile alone, and the other way round"}},
		{"Cancel ends the latest Connect", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Connect {
				b.held = []transport.Completion{{Token: op.Token}}
			}
			if op.Kind == transport.Cancel && op.Target == transport.Connect && len(b.held) > 0 {
				op.ConnectToken = b.held[0].Token
			}
			b.Transport.Submit(op)
		}}, []string{"Cancel of a Connect ends the one with its token"}},
	}
}

func closeBreakages() []breakage {
	return []breakage{
		{"Close completes first", broken{
			batch: func(b *broken, cs []transport.Completion) []transport.Completion {
				for i := range cs {
					if b.kind(&cs[i]) == transport.Close {
						cs[0], cs[i] = cs[i], cs[0]
						break
					}
				}
				return cs
			},
		}, []string{
			"Close completes after the last completions of all other operations, which are cancelled",
			"Close works in the same turn as what it ends",
		}},
		{"Close with an armed Recv sends no FIN", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Recv {
				b.conn = op.Handle
			}
			if op.Kind == transport.Close && op.Handle == b.conn && !op.Reset {
				b.conn = 0
				b.noOp(op)
				return
			}
			b.Transport.Submit(op)
		}, change: noOps}, []string{"Close with an armed Recv sends FIN to the peer"}},
		{"Close with Reset sends FIN", broken{submit: func(b *broken, op transport.Op) {
			op.Reset = false
			b.Transport.Submit(op)
		}}, []string{"Close with Reset gives the peer ECONNRESET"}},
	}
}

func staleBreakages() []breakage {
	return []breakage{
		{"a stale Handle reaches its successor", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Recv && b.Transport.LocalAddr(op.Handle) != nil {
				b.conn = op.Handle
			}
			if op.Kind == transport.CloseWrite && b.Transport.LocalAddr(op.Handle) == nil {
				op.Handle = b.conn
			}
			b.Transport.Submit(op)
		}}, []string{"an operation on a stale Handle does not touch the one that has its place now"}},
		{"operations on a stale Handle succeed", broken{change: func(_ *broken, c *transport.Completion) bool {
			if errors.Is(c.Err, transport.ErrStale) {
				c.Err = nil
			}
			return true
		}}, []string{"operations on a Handle from its Close on complete with ErrStale"}},
		{"a Handle comes back", broken{
			change: func(b *broken, c *transport.Completion) bool {
				if b.kind(c) == transport.Accept && c.Handle != 0 {
					if b.conn == 0 {
						b.conn = c.Handle
					}
					c.Handle = b.conn
				}
				return true
			},
		}, []string{
			"Handles do not come back, open and close as often as you like",
			"1,000 connections are accepted, each under a Handle of its own and with its peer's address",
		}},
	}
}

func handOverBreakages() []breakage {
	return []breakage{
		{"HandOver eats what has arrived", broken{let: func(b *broken, h transport.Handle) (transport.Socket, error) {
			b.Transport.Submit(transport.Op{Kind: transport.Recv, Handle: h, Limit: 1})
			b.Transport.Submit(transport.Op{Kind: transport.Cancel, Handle: h, Target: transport.Recv})
			out, err := b.Transport.Wait(nil, 0)
			for _, c := range out {
				if c.Buf != nil {
					c.Buf.Release()
				}
			}
			if err != nil {
				return nil, err
			}
			return b.Transport.HandOver(h)
		}}, []string{"a socket that is handed over loses nothing that comes before, meanwhile and after"}},
		{"HandOver of a stale Handle returns nil, nil", broken{
			let: func(b *broken, h transport.Handle) (transport.Socket, error) {
				s, err := b.Transport.HandOver(h)
				if errors.Is(err, transport.ErrStale) {
					err = nil
				}
				return s, err
			},
		}, []string{"a socket that is handed over is stale where it was"}},
		{"HandOver of a busy socket says that it is stale", broken{
			let: func(b *broken, h transport.Handle) (transport.Socket, error) {
				s, err := b.Transport.HandOver(h)
				if err != nil {
					err = transport.ErrStale
				}
				return s, err
			},
		}, []string{"HandOver refuses listeners and sockets that are in use, and these go on"}},
		{"what nobody takes over stays open", broken{
			let: func(b *broken, h transport.Handle) (transport.Socket, error) {
				s, err := b.Transport.HandOver(h)
				if err != nil {
					return nil, err
				}
				return &keptOpen{s}, nil
			},
			take: func(b *broken, s transport.Socket) (transport.Handle, error) {
				if k, ok := s.(*keptOpen); ok {
					s = k.Socket
				}
				return b.Transport.TakeOver(s)
			},
		}, []string{"a socket that nobody takes over is reset"}},
		{"a socket is dismissed with RST", broken{let: func(b *broken, h transport.Handle) (transport.Socket, error) {
			s, err := b.Transport.HandOver(h)
			if err != nil {
				return nil, err
			}
			return &rude{s}, nil
		}, take: func(b *broken, s transport.Socket) (transport.Handle, error) {
			if k, ok := s.(*rude); ok {
				s = k.Socket
			}
			return b.Transport.TakeOver(s)
		}}, []string{"a socket that is dismissed sends its last words and FIN, also when it has bytes unread"}},
		{"TakeOver leaves open what it refuses", broken{
			take: func(b *broken, s transport.Socket) (transport.Handle, error) {
				if h, err := b.Transport.TakeOver(&keptOpen{s}); err == nil {
					return h, nil
				}
				if _, ok := s.(*foreign); ok {
					return 0, transport.ErrNotSupported
				}
				return b.Transport.TakeOver(s)
			},
		}, []string{"TakeOver closes what it refuses"}},
	}
}

// rude is a Socket that is never dismissed, only closed.
type rude struct{ transport.Socket }

func (r *rude) Dismiss([]byte) { r.Close() }

// keptOpen is a Socket that Close does not close.
type keptOpen struct{ transport.Socket }

func (*keptOpen) Close() {}

func acceptBreakages() []breakage {
	return []breakage{
		{"Accept gives a wrong peer address", broken{change: func(b *broken, c *transport.Completion) bool {
			if c.Addr.IsValid() && b.every(2) {
				c.Addr = netip.AddrPortFrom(c.Addr.Addr(), c.Addr.Port()+1)
			}
			return true
		}}, []string{
			"1,000 connections are accepted, each under a Handle of its own and with its peer's address",
		}},
		{"a cancelled Accept loses a connection", broken{
			submit: func(b *broken, op transport.Op) {
				b.conn = 0
				if op.Kind == transport.Cancel {
					b.conn = op.Handle
				}
				b.Transport.Submit(op)
			},
			change: func(b *broken, c *transport.Completion) bool { return b.conn == 0 || c.Handle == 0 },
		}, []string{"an Accept that is cancelled and submitted again loses no connection"}},
		{"a peer has no address", broken{change: func(b *broken, c *transport.Completion) bool {
			if b.kind(c) == transport.Accept {
				c.Addr = netip.AddrPort{}
			}
			return true
		}}, []string{"the address of a peer that has reset the connection is known"}},
		{"a peer without an address passes for a Unix socket", broken{
			change: func(b *broken, c *transport.Completion) bool {
				if b.kind(c) == transport.Accept {
					c.Addr, c.Unix = netip.AddrPort{}, true
				}
				return true
			},
		}, []string{"the address of a peer that has reset the connection is known"}},
		{"Connect says its own address", broken{change: func(b *broken, c *transport.Completion) bool {
			if b.kind(c) == transport.Connect && c.Handle != 0 {
				own, _ := b.Transport.LocalAddr(c.Handle).(*net.TCPAddr)
				c.Addr = own.AddrPort()
			}
			return true
		}}, []string{"Connect says the address that it has connected to"}},
		{"the connection is refused otherwise", broken{change: func(_ *broken, c *transport.Completion) bool {
			if errors.Is(c.Err, syscall.ECONNREFUSED) {
				c.Err = syscall.ETIMEDOUT
			}
			return true
		}}, []string{"Connect where nobody listens fails with ECONNREFUSED"}},
		{"closing a listener leaves its port taken", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Accept {
				b.conn = op.Handle
				b.held = []transport.Completion{{Token: op.Token}}
			}
			if op.Kind == transport.Close && op.Handle == b.conn {
				b.Transport.Submit(transport.Op{
					Kind: transport.Cancel, Handle: op.Handle, Target: transport.Accept,
					Token: 1<<40 + 1,
				})
				b.noOp(op)
				return
			}
			b.Transport.Submit(op)
		}, change: func(b *broken, c *transport.Completion) bool {
			return c.Token != 1<<40+1 && noOps(b, c)
		}}, []string{"closing a listener ends its Accept first and frees its port"}},
		{"what is acknowledged stands still", broken{acked: func(b *broken, h transport.Handle) (uint64, int, error) {
			_, left, err := b.Transport.Acked(h)
			return 1, left, err
		}}, []string{"Acked changes when the peer has taken what was sent, and a stale Handle has none"}},
		{"all is acknowledged at once", broken{acked: func(b *broken, h transport.Handle) (uint64, int, error) {
			mark, _, err := b.Transport.Acked(h)
			return mark, 0, err
		}}, []string{"Acked tells that a peer which does not read has not taken everything"}},
		{"a listener does not know its port", broken{addr: func(b *broken, h transport.Handle) net.Addr {
			if b.Transport.LocalAddr(h) == nil {
				return nil
			}
			return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
		}}, []string{"a listener with port 0 knows the port it got"}},
	}
}

func watchBreakages() []breakage {
	return []breakage{
		{"a WatchClose completes at once", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.WatchClose {
				b.noOp(op)
				return
			}
			b.Transport.Submit(op)
		}, change: noOps}, []string{
			"WatchClose completes on FIN", "WatchClose does not complete while the peer only sends",
			"WatchClose after EOF completes only on a reset",
		}},
		{"a WatchClose never completes", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind != transport.WatchClose {
				b.Transport.Submit(op)
			}
		}}, []string{"WatchClose completes on FIN", "WatchClose completes on a reset"}},
		{"a WatchClose reads", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.WatchClose {
				b.Transport.Submit(transport.Op{Kind: transport.Recv, Handle: op.Handle, Token: 1<<40 + 1, Limit: 100})
			}
			b.Transport.Submit(op)
		}, change: func(_ *broken, c *transport.Completion) bool { return c.Token != 1<<40+1 }}, []string{
			"WatchClose consumes nothing, and data stays readable after the peer closed",
		}},
	}
}

func sendBreakages() []breakage {
	return []breakage{
		{"a Send tells of too much", broken{change: func(b *broken, c *transport.Completion) bool {
			if b.kind(c) == transport.Send && c.More {
				c.N++
			}
			return true
		}}, []string{"the completions of a Send add up to its bytes, also when the peer is slow"}},
		{"a Send sends what was consumed, too", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Send && len(op.Bufs) == 10 {
				op.Bufs = append([]*buffer.Buf{buffer.Wrap([]byte{0})}, op.Bufs...)
			}
			b.Transport.Submit(op)
		}}, []string{"a Send begins at the read index of its Bufs"}},
		{"a Send takes at most 1,024 Bufs", broken{submit: func(b *broken, op transport.Op) {
			op.Bufs = op.Bufs[:min(len(op.Bufs), 1024)]
			b.Transport.Submit(op)
		}}, []string{"a Send of 5,000 Bufs arrives complete and in order"}},
		{"a Send consumes its Bufs", broken{change: func(b *broken, c *transport.Completion) bool {
			if b.kind(c) == transport.Send && len(b.held) > 0 && !c.More {
				b.held[0].Buf.Advance(1)
				b.held = nil
			}
			return true
		}, submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Send && len(op.Bufs) > 0 && op.Bufs[0].Len() > 0 {
				b.held = []transport.Completion{{Buf: op.Bufs[0]}}
			}
			b.Transport.Submit(op)
		}}, []string{"a Send leaves its Bufs as they were"}},
		{"a Send of nothing never completes", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind != transport.Send || len(op.Bufs) > 0 {
				b.Transport.Submit(op)
			}
		}}, []string{"a Send of nothing completes with N 0"}},
		{"NoWait waits", broken{submit: func(b *broken, op transport.Op) {
			op.NoWait = false
			b.Transport.Submit(op)
		}}, []string{"a Send with NoWait that does not fit says how much went out"}},
		{"NoWait is told only with something else", broken{change: func(b *broken, c *transport.Completion) bool {
			return b.kind(c) != transport.Send || c.N != 10
		}}, []string{"a Send with NoWait ends a Wait that blocks, taken whole or not"}},
		{"SendNow does nothing", broken{direct: func(_ *broken, _ transport.Handle, _ []*buffer.Buf) (int, error) {
			return 0, transport.ErrNotNow
		}}, []string{"SendNow sends what there is room for, without a completion"}},
		{"SendNow forgets the last Buf", broken{
			direct: func(b *broken, h transport.Handle, bufs []*buffer.Buf) (int, error) {
				n, err := b.Transport.SendNow(h, bufs[:max(1, len(bufs)-1)])
				if len(bufs) > 1 && err == nil {
					n += bufs[len(bufs)-1].Len()
				}
				return n, err
			},
		}, []string{"SendNow of several Bufs sends them in order and leaves them as they were"}},
		{"SendNow says nothing of a part", broken{
			direct: func(b *broken, h transport.Handle, bufs []*buffer.Buf) (int, error) {
				n, err := b.Transport.SendNow(h, bufs)
				if errors.Is(err, transport.ErrWouldBlock) {
					err = nil
				}
				return n, err
			},
		}, []string{"SendNow that finds too little room says how much went out"}},
		{"SendNow cannot fail", broken{direct: func(b *broken, h transport.Handle, bufs []*buffer.Buf) (int, error) {
			n, err := b.Transport.SendNow(h, bufs)
			if err != nil && !errors.Is(err, transport.ErrWouldBlock) {
				err = nil
			}
			return n, err
		}}, []string{
			"SendNow while a Send is in progress is ErrBusy and leaves it alone",
			"SendNow on a Handle that is closed is ErrStale",
			"SendNow to a peer that reset the connection fails",
		}},
	}
}

func fileBreakages() []breakage {
	return []breakage{
		{"SendFile begins at the beginning", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.SendFile {
				op.File = &transport.FileRange{File: op.File.File, Length: op.File.Length}
			}
			b.Transport.Submit(op)
		}}, []string{"SendFile sends Length bytes from Offset on"}},
		{"a file that ends early looks whole", broken{change: func(_ *broken, c *transport.Completion) bool {
			if errors.Is(c.Err, io.ErrUnexpectedEOF) {
				c.Err = nil
			}
			return true
		}}, []string{"a file that ends early fails with io.ErrUnexpectedEOF, after what there was"}},
		{
			"Stats count too little",
			broken{stats: func(s *transport.Stats) { s.Received = s.Received / 1024 * 1024 }},
			[]string{
				"Stats add up",
			},
		},
		{"something stays open", broken{stats: func(s *transport.Stats) { s.Open++ }}, []string{
			"Connect where nobody listens fails with ECONNREFUSED", bothWaysClaim,
		}},
		{"a closed transport can be woken", broken{closed: func(*broken) error { return nil }}, []string{
			"a closed transport answers ErrClosed", "Wait with a zero timeout only looks",
		}},
		{"what a closed transport did not hand out is leaked", broken{closed: func(b *broken) error {
			_, _ = b.Transport.Wait(nil, 0)
			return b.Transport.Close()
		}}, []string{"closing a transport with everything in flight neither panics nor leaks"}},
	}
}
