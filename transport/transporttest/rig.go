package transporttest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/transport"
)

const (
	patience   = 20 * time.Second // of the wall or, on virtual time, of the transport's clock
	shortWait  = time.Millisecond
	quietTurns = 3 // turns without completions after which nothing more is expected
	blockBytes = 64 << 10
)

// rig holds the transports of one claim and drives them alternately from the test's goroutine.
type rig struct {
	testing.TB
	f       Factory
	ends    []*end
	listens int
	ended   int // terminals seen, for the order between operations
	closed  bool
}

func newRig(tb testing.TB, f Factory, n int) *rig {
	tb.Helper()
	r := &rig{TB: tb, f: f}
	if r.f.BlockBytes == 0 {
		r.f.BlockBytes = blockBytes
	}
	trs := f.Open(tb, n)
	if len(trs) != n {
		tb.Fatalf("Open answered %d transports, want %d", len(trs), n)
	}
	for i, tr := range trs {
		r.ends = append(r.ends, &end{
			r: r, tr: tr, index: i,
			calls: map[transport.Token]*call{}, handles: map[transport.Handle]bool{},
		})
	}
	return r
}

// server and client are the usual roles of the first two transports.
func (r *rig) server() *end { return r.ends[0] }
func (r *rig) client() *end { return r.ends[1] }

// turn waits once on each transport: without blocking first, then briefly on one after the other while nothing comes.
// It returns the number of completions.
func (r *rig) turn() int {
	n := 0
	for _, e := range r.ends {
		n += e.wait(0)
	}
	for _, e := range r.ends {
		if n > 0 {
			break
		}
		n += e.wait(shortWait)
	}
	return n
}

// until takes turns until cond holds and fails the test when that takes too long.
func (r *rig) until(what string, cond func() bool) {
	r.Helper()
	if !r.within(cond) {
		r.Fatalf("%s: waited in vain for: %s\n%s", r.f.Name, what, r.state())
	}
}

// within takes turns until cond holds and reports whether it did before patience ended.
func (r *rig) within(cond func() bool) bool {
	wall, clock := time.Now(), r.ends[0].tr.Now()
	for !cond() {
		r.turn()
		passed := time.Since(wall)
		if r.f.Features.VirtualTime {
			passed = max(passed/4, r.ends[0].tr.Now()-clock)
		}
		if passed > patience {
			return cond()
		}
	}
	return true
}

// done takes turns until all the calls have ended.
func (r *rig) done(calls ...*call) {
	r.Helper()
	if !r.within(func() bool { return allDone(calls) }) {
		r.Fatalf("%s: waited in vain for the end of: %s\n%s", r.f.Name, describe(calls), r.state())
	}
}

func allDone(calls []*call) bool {
	for _, c := range calls {
		if !c.done {
			return false
		}
	}
	return true
}

// quiet takes turns until nothing comes any more.
func (r *rig) quiet() {
	for idle := 0; idle < quietTurns; idle++ {
		if r.turn() > 0 {
			idle = 0
		}
	}
}

// state describes what is still going on.
func (r *rig) state() string {
	var s strings.Builder
	for _, e := range r.ends {
		fmt.Fprintf(&s, "transport %d: %+v\n", e.index, e.tr.Stats())
		for _, c := range e.order {
			if !c.done {
				fmt.Fprintf(&s, "  %v\n", c)
			}
		}
	}
	return s.String()
}

// finish closes what is open and checks what holds after every claim: each operation had exactly one last completion,
// no Buf is outstanding, nothing is open, and a closed transport says so.
func (r *rig) finish() {
	r.Helper()
	for _, e := range r.ends {
		e.closeAll()
	}
	r.until("the last completion of every operation", func() bool {
		for _, e := range r.ends {
			if e.pending > 0 || len(e.handles) > 0 {
				e.closeAll()
				return false
			}
		}
		return true
	})
	r.quiet() // what comes after a last completion fails the test
	for _, e := range r.ends {
		r.balanced(e)
		if open := e.tr.Stats().Open; open != 0 {
			r.Errorf("transport %d: %d open after everything was closed", e.index, open)
		}
	}
	if r.f.Check != nil {
		r.f.Check(r.TB, r.transports())
	}
	r.closed = true
	for _, e := range r.ends {
		e.shut()
	}
}

// balanced fails the test when Bufs of e's pool are outstanding.
func (r *rig) balanced(e *end) {
	r.Helper()
	pool := e.tr.Pool()
	if n := pool.Outstanding(); n != 0 {
		r.Errorf("transport %d: %d Bufs outstanding\n%s", e.index, n, strings.Join(pool.Leaks(), "\n"))
	}
	if n := pool.OutstandingBytes(); n != 0 {
		r.Errorf("transport %d: %d bytes of blocks outstanding", e.index, n)
	}
}

// abandon closes the transports of a claim that failed.
func (r *rig) abandon() {
	if r.closed {
		return
	}
	r.closed = true
	for _, e := range r.ends {
		_ = e.tr.Close()
	}
}

func (r *rig) transports() []transport.Transport {
	trs := make([]transport.Transport, len(r.ends))
	for i, e := range r.ends {
		trs[i] = e.tr
	}
	return trs
}

// wantErr fails the test unless err is want.
func (r *rig) wantErr(what string, err, want error) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

// wantErrIn fails the test unless err is one of those wanted.
func (r *rig) wantErrIn(what string, err error, wanted ...error) {
	r.Helper()
	for _, want := range wanted {
		if errors.Is(err, want) {
			return
		}
	}
	r.Fatalf("%s: error %v, want one of %v", what, err, wanted)
}

// must fails the test on an error.
func (r *rig) must(what string, err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}
