package transporttest

import (
	"errors"
	"fmt"
	"net/netip"
	"sort"
	"strings"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// end is one transport with the record of what was submitted to it and what came back.
type end struct {
	r           *rig
	tr          transport.Transport
	index       int
	calls       map[transport.Token]*call
	order       []*call
	pending     int // calls without their last completion
	serial      uint32
	handles     map[transport.Handle]bool // open, closed by finish
	batch       []transport.Completion
	now         time.Duration
	completions int // handed out
}

// call is one operation.
type call struct {
	op    transport.Op
	own   []*buffer.Buf // released after the end
	keep  bool          // Recv: data is retained in bufs instead of copied to data
	hold  bool          // Recv: the Bufs are held in bufs as they come, without Retain
	drop  bool          // Recv: the data is only counted
	count int           // completions
	done  bool
	size  int // bytes to send
	endAt int // position among all last completions
	n     int // sum of N
	err   error
	data  []byte
	bufs  []*buffer.Buf // Recv with keep or hold: owned
	conns []transport.Handle
	addrs []netip.AddrPort
	unix  []bool
}

func (c *call) String() string {
	return fmt.Sprintf("%s %#x on %#x (%d completions, %d bytes, done %v, error %v)",
		kindName(c.op.Kind), uint64(c.op.Token), uint64(c.op.Handle), c.count, c.n, c.done, c.err)
}

// handle is the connection of a Connect that has ended.
func (c *call) handle() transport.Handle {
	if len(c.conns) == 0 {
		return 0
	}
	return c.conns[0]
}

// submit submits op under a token of its own, unless it has one.
func (e *end) submit(op transport.Op) *call {
	if op.Token == 0 {
		e.serial++
		op.Token = transport.MakeToken(e.serial, e.serial*7919, uint8(op.Kind))
	}
	c := &call{op: op, size: sizeOf(op)}
	if old := e.calls[op.Token]; old != nil && !old.done {
		e.r.Fatalf("the test uses token %#x twice at once", uint64(op.Token))
	}
	e.calls[op.Token] = c
	e.order = append(e.order, c)
	e.pending++
	if op.Kind == transport.Close {
		delete(e.handles, op.Handle)
	}
	e.tr.Submit(op)
	return c
}

// wait calls Wait once and records what it returns.
func (e *end) wait(timeout time.Duration) int {
	e.r.Helper()
	if cap(e.batch) == 0 {
		e.batch = make([]transport.Completion, 0, 64)
	}
	out, err := e.tr.Wait(e.batch[:0], timeout)
	if err != nil {
		e.r.Fatalf("transport %d: Wait: %v", e.index, err)
	}
	if len(out) > cap(e.batch) {
		e.r.Fatalf("transport %d: Wait answered %d completions, dst has room for %d", e.index, len(out), cap(e.batch))
	}
	if now := e.tr.Now(); now < e.now {
		e.r.Fatalf("transport %d: Now went back from %v to %v", e.index, e.now, now)
	} else {
		e.now = now
	}
	for i := range out {
		e.record(&out[i])
	}
	return len(out)
}

// record checks a completion against what its operation may yield and files it.
func (e *end) record(c *transport.Completion) {
	e.r.Helper()
	e.completions++
	p := e.calls[c.Token]
	if p == nil {
		e.r.Fatalf("transport %d: a completion of token %#x, which was never submitted: %+v", e.index, uint64(c.Token),
			*c)
	}
	if p.done {
		e.r.Fatalf("transport %d: a completion after the last one of %v: %+v", e.index, p, *c)
	}
	p.count++
	p.n += c.N
	e.check(p, c)
	if c.Buf != nil {
		e.received(p, c.Buf)
	}
	if c.Handle != 0 {
		if e.handles[c.Handle] {
			e.r.Fatalf("transport %d: %v answered handle %#x, which is in use", e.index, p, uint64(c.Handle))
		}
		e.handles[c.Handle] = true
		p.conns = append(p.conns, c.Handle)
		p.addrs, p.unix = append(p.addrs, c.Addr), append(p.unix, c.Unix)
		if c.Addr.IsValid() == c.Unix {
			e.r.Fatalf("%v: the peer has the address %v, and Unix is %v", p, c.Addr, c.Unix)
		}
	}
	if c.More {
		return
	}
	p.done, p.err = true, c.Err
	e.r.ended++
	p.endAt = e.r.ended
	e.pending--
	for _, b := range p.own {
		b.Release()
	}
	p.own = nil
}

// check fails the test when the completion has what its kind of operation does not yield.
func (e *end) check(p *call, c *transport.Completion) {
	e.r.Helper()
	bad := func(why string) {
		e.r.Fatalf("transport %d: %s: %v: %+v", e.index, why, p, *c)
	}
	if c.Err != nil && c.More {
		bad("an error that is not the last completion")
	}
	if c.N < 0 {
		bad("a negative N")
	}
	switch p.op.Kind {
	case transport.Recv:
		if c.Handle != 0 {
			bad("a receive with a Handle")
		}
		if (c.Buf == nil) != (c.N == 0) || c.Buf != nil && c.Buf.Len() != c.N {
			bad("N and the length of Buf differ")
		}
		if c.Buf != nil && c.Err != nil {
			bad("data and an error in one completion")
		}
		if c.Buf == nil && c.Err == nil {
			bad("a receive without data and error")
		}
		if p.n >= p.op.Limit+e.r.f.BlockBytes {
			bad("the limit is overshot by a block or more")
		}
		if c.More && p.n >= p.op.Limit {
			bad("a receive goes on past its limit")
		}
		if !c.More && c.Err == nil && p.n < p.op.Limit {
			bad("a receive ends before its limit without an error")
		}
	case transport.Send, transport.SendFile:
		if c.Buf != nil || c.Handle != 0 {
			bad("a send with a Buf or a Handle")
		}
		if !c.More && c.Err == nil && p.n != p.size || p.n > p.size {
			bad(fmt.Sprintf("the completions of a send of %d bytes add up to %d", p.size, p.n))
		}
	case transport.Accept, transport.Connect:
		if c.Buf != nil || c.N != 0 || c.Err != nil && c.Handle != 0 {
			bad("data on an operation without, or an error beside a connection")
		}
		last := p.op.Limit > 0 && len(p.conns)+1 >= p.op.Limit
		if p.op.Kind == transport.Accept && c.Err == nil && (c.Handle == 0 || c.More == last) {
			bad("an Accept without a connection, or one that ends before its limit, or goes on behind it")
		}
	default:
		if c.Buf != nil || c.N != 0 || c.Handle != 0 || c.More {
			bad("more than one completion, or data on an operation without")
		}
	}
}

// received files the data of a receive; the Buf is the test's.
func (e *end) received(p *call, b *buffer.Buf) {
	if p.hold {
		p.bufs = append(p.bufs, b)
		return
	}
	switch {
	case p.drop:
	case p.keep:
		p.bufs = append(p.bufs, b.Retain())
	default:
		p.data = append(p.data, b.Bytes()...)
	}
	b.Release()
}

// sizeOf is the number of bytes that op has to send.
func sizeOf(op transport.Op) int {
	if op.Kind == transport.SendFile {
		return int(op.File.Length)
	}
	n := 0
	for _, b := range op.Bufs {
		n += b.Len()
	}
	return n
}

// closeAll closes every open handle, in order.
func (e *end) closeAll() {
	for _, h := range sortedHandles(e.handles) {
		e.submit(transport.Op{Kind: transport.Close, Handle: h})
	}
}

// forget gives up what is open and under way: the transport was closed.
func (e *end) forget() {
	clear(e.handles)
	e.pending = 0
}

// shut closes the transport and checks what a closed one returns.
func (e *end) shut() {
	e.r.Helper()
	if err := e.tr.Close(); err != nil {
		e.r.Errorf("transport %d: Close: %v", e.index, err)
	}
	if err := e.tr.Wake(); !errors.Is(err, transport.ErrClosed) {
		e.r.Errorf("transport %d: Wake after Close: %v, want ErrClosed", e.index, err)
	}
	e.r.balanced(e)
}

func sortedHandles(set map[transport.Handle]bool) []transport.Handle {
	all := make([]transport.Handle, 0, len(set))
	for h := range set {
		all = append(all, h)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all
}

func describe(calls []*call) string {
	all := make([]string, len(calls))
	for i, c := range calls {
		all[i] = c.String()
		if i == 3 && len(calls) > 5 {
			return fmt.Sprintf("%s and %d more", strings.Join(all[:4], ", "), len(calls)-4)
		}
	}
	return strings.Join(all, ", ")
}

func kindName(k transport.Kind) string {
	names := [...]string{
		"None", "Recv", "Send", "SendFile", "Accept", "Connect", "WatchClose", "CloseWrite", "Close", "Cancel",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", k)
}
