package transporttest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/transport"
)

func waitClaims() []claim {
	return []claim{
		{name: "Wait appends to dst and leaves alone what dst holds", run: waitAppends},
		{name: "Wait never hands out more than dst has room for", run: waitRespectsRoom},
		{name: "Wait hands out at most 256 completions when dst has no room", run: waitWithoutRoom},
		{name: "what a full batch leaves comes with the next calls, in order and without loss", run: waitLeavesOrder},
		{name: "what is left over is handed out without entering the kernel", run: waitLeftoversWithoutKernel},
		{name: "Wait with a zero timeout only looks", run: waitZero, ends: 1},
		{name: "Wait with a timeout returns without completions when nothing happens", run: waitTimeout, ends: 1},
		{name: "Now stays the same between two Waits and never goes back", run: nowIsCached},
		{name: "Wake before Wait makes that Wait return at once", run: wakeBefore, ends: 1},
		{name: "Wake from another goroutine ends a Wait that runs", run: wakeDuring, needs: needsThreads, ends: 1},
		{name: "many Wakes before a Wait count as one", run: wakesCoalesce, ends: 1},
		{name: "many goroutines may call Wake at any time", run: wakeFromMany, needs: needsThreads},
		{name: "Wake loses no completion", run: wakeLosesNothing},
		{name: "a closed transport answers ErrClosed", run: closedTransport},
		{name: "a token of any 64 bits below SlotReserved comes back unchanged", run: tokensRoundTrip},
	}
}

// someCompletions submits n operations that end at once and are told apart by their tokens.
func (e *end) someCompletions(n int) []*call {
	calls := make([]*call, n)
	for i := range calls {
		calls[i] = e.submit(transport.Op{Kind: transport.Cancel, Target: transport.Connect})
	}
	return calls
}

func waitAppends(r *rig) {
	e := r.client()
	calls := e.someCompletions(8)
	held := transport.Completion{Token: 42, N: 4711}
	r.until("8 completions", func() bool {
		dst := append(make([]transport.Completion, 0, 16), held, held)
		out, err := e.tr.Wait(dst, shortWait)
		r.must("Wait", err)
		if len(out) < 2 || out[0] != held || out[1] != held || &out[0] != &dst[0] {
			r.Fatalf("Wait changed what dst held, or moved it although there was room")
		}
		for i := range out[2:] {
			e.record(&out[2+i])
		}
		return allDone(calls)
	})
}

func waitRespectsRoom(r *rig) {
	e := r.client()
	for _, room := range []int{1, 2, 3, 7} {
		calls := e.someCompletions(20)
		r.until("20 completions", func() bool {
			out, err := e.tr.Wait(make([]transport.Completion, 1, 1+room)[:1], shortWait)
			r.must("Wait", err)
			if len(out)-1 > room {
				r.Fatalf("Wait handed out %d completions, room was %d", len(out)-1, room)
			}
			for i := range out[1:] {
				e.record(&out[1+i])
			}
			return allDone(calls)
		})
	}
}

func waitWithoutRoom(r *rig) {
	e := r.client()
	calls := e.someCompletions(600)
	r.until("600 completions", func() bool {
		out, err := e.tr.Wait(nil, shortWait)
		r.must("Wait", err)
		if len(out) > 256 {
			r.Fatalf("Wait handed out %d completions", len(out))
		}
		for i := range out {
			e.record(&out[i])
		}
		return allDone(calls)
	})
}

func waitLeavesOrder(r *rig) {
	l := r.link()
	want := payload(1, 1<<20)
	recv := l.b.recv(0)
	send := l.a.send(want)
	one := make([]transport.Completion, 0, 1)
	r.until("all data", func() bool {
		l.a.e.wait(0)
		out, err := l.b.e.tr.Wait(one, shortWait)
		r.must("Wait", err)
		for i := range out {
			l.b.e.record(&out[i])
		}
		return len(recv.data) >= len(want) && send.done
	})
	r.same("data received one completion at a time", recv.data, want)
}

func waitLeftoversWithoutKernel(r *rig) {
	e := r.client()
	calls := e.someCompletions(20)
	one := make([]transport.Completion, 0, 1)
	take := func(timeout time.Duration) int {
		out, err := e.tr.Wait(one, timeout)
		r.must("Wait", err)
		for i := range out {
			e.record(&out[i])
		}
		return len(out)
	}
	r.until("the first completion", func() bool { return take(shortWait) > 0 })
	entered := e.tr.Stats().Waits
	run := 0
	for take(0) > 0 {
		if e.tr.Stats().Waits == entered {
			run++
		}
		entered = e.tr.Stats().Waits
	}
	if run == 0 {
		r.Fatalf("each of the calls that handed out what was left entered the kernel")
	}
	r.done(calls...)
}

// alarmed runs fn, which must not block, and wakes e when it does.
func (r *rig) alarmed(e *end, what string, fn func()) {
	r.Helper()
	var rang atomic.Bool
	alarm := time.AfterFunc(patience, func() {
		rang.Store(true)
		_ = e.tr.Wake()
	})
	fn()
	alarm.Stop()
	if rang.Load() {
		r.Fatalf("%s blocked", what)
	}
}

func waitZero(r *rig) {
	e := r.ends[0]
	r.alarmed(e, "Wait with a zero timeout", func() {
		for range 10 {
			if n := e.wait(0); n != 0 {
				r.Fatalf("%d completions of nothing", n)
			}
		}
	})
}

func waitTimeout(r *rig) {
	e := r.ends[0]
	r.alarmed(e, "Wait with a timeout", func() {
		e.wait(0)
		start := e.tr.Now()
		for e.tr.Now() < start+20*time.Millisecond { // early returns are allowed
			if n := e.wait(5 * time.Millisecond); n != 0 {
				r.Fatalf("%d completions of nothing", n)
			}
		}
	})
}

func nowIsCached(r *rig) {
	e := r.client()
	e.wait(0)
	for range 50 {
		before := e.tr.Now()
		e.someCompletions(1)
		for range 1000 {
			if now := e.tr.Now(); now != before {
				r.Fatalf("Now changed from %v to %v without a Wait", before, now)
			}
		}
		e.wait(shortWait) // checks that it did not go back
	}
}

func wakeBefore(r *rig) {
	e := r.ends[0]
	r.alarmed(e, "Wait after Wake", func() {
		for range 100 {
			r.must("Wake", e.tr.Wake())
			e.wait(-1)
		}
	})
}

func wakeDuring(r *rig) {
	e := r.ends[0]
	r.alarmed(e, "Wait", func() {
		for i := range 20 {
			// The wait is given a head start now and then; the claim holds whichever comes first.
			go func() {
				time.Sleep(time.Duration(i%4) * time.Millisecond)
				_ = e.tr.Wake()
			}()
			e.wait(-1)
		}
	})
}

func wakesCoalesce(r *rig) {
	e := r.ends[0]
	e.wait(0)
	before := e.tr.Stats().Wakes
	r.alarmed(e, "Wait", func() {
		for range 1000 {
			r.must("Wake", e.tr.Wake())
		}
		e.wait(-1)
		for range 20 {
			e.wait(shortWait)
		}
	})
	if woken := e.tr.Stats().Wakes - before; woken > 1 {
		r.Fatalf("1000 Wakes before a Wait made %d Waits return", woken)
	}
}

func wakeFromMany(r *rig) {
	e := r.client()
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !stop.Load() {
				_ = e.tr.Wake()
				time.Sleep(10 * time.Microsecond)
			}
		})
	}
	defer all.Wait()
	defer stop.Store(true)
	l := r.link()
	want := payload(2, 1<<20)
	recv, send := l.a.recv(len(want)), l.b.send(want)
	r.done(recv, send)
	r.same("data received while being woken", recv.data, want)
}

func wakeLosesNothing(r *rig) {
	l := r.link()
	want := payload(3, 256<<10)
	recv := l.b.recv(0)
	send := l.a.send(want)
	r.until("all data", func() bool {
		_ = l.b.e.tr.Wake()
		_ = l.a.e.tr.Wake()
		return len(recv.data) >= len(want) && send.done
	})
	r.same("data", recv.data, want)
}

func closedTransport(r *rig) {
	e := r.client()
	r.quiet()
	r.must("Close", e.tr.Close())
	if err := e.tr.Wake(); !errors.Is(err, transport.ErrClosed) {
		r.Fatalf("Wake: %v", err)
	}
	if out, err := e.tr.Wait(nil, 0); !errors.Is(err, transport.ErrClosed) || len(out) != 0 {
		r.Fatalf("Wait: %d completions, %v", len(out), err)
	}
	if _, err := e.tr.Listen(r.address()); !errors.Is(err, transport.ErrClosed) {
		r.Fatalf("Listen: %v", err)
	}
	r.ends = r.ends[:1]
}

func tokensRoundTrip(r *rig) {
	e := r.client()
	tokens := []transport.Token{
		3, 1<<8 - 1, 1 << 8, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63,
		transport.MakeToken(transport.SlotReserved-1, 1<<24-1, 255),
		0xdeadbeef_cafebabe, 0x5555555555555555, 0xaaaaaaaaaaaaaaaa,
	}
	var calls []*call
	for i := 1; i <= 64; i++ {
		tokens = append(tokens, transport.Token(uint64(i)*0x9e3779b97f4a7c15|1)&^(1<<60))
	}
	for _, token := range tokens {
		calls = append(calls, e.submit(transport.Op{Kind: transport.Cancel, Token: token, Target: transport.Connect}))
	}
	r.done(calls...)
	// Those of operations which the kernel sees, too.
	l := r.link()
	for i, token := range tokens[:11] {
		want := payload(uint64(i), 100)
		recv := l.b.e.submit(transport.Op{Kind: transport.Recv, Handle: l.b.h, Token: token, Limit: len(want)})
		bufs := l.a.pieces(want, 50)
		send := l.a.e.submit(transport.Op{Kind: transport.Send, Handle: l.a.h, Token: token, Bufs: bufs})
		send.own = bufs
		r.done(recv, send)
		r.same("data", recv.data, want)
	}
}
