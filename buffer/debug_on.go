//go:build invariants

package buffer

import (
	"fmt"
	"runtime"
	"sort"
	"strings"
)

// reuseForbidden keeps released headers out of circulation, so that a use after release is always seen.
const reuseForbidden = true

// record is the history of one Buf.
type record struct {
	seq   int
	trail []string
}

// ledger knows the outstanding Bufs of a pool.
type ledger struct {
	seq  int
	live map[*Buf]*record
}

func newLedger() *ledger { return &ledger{live: map[*Buf]*record{}} }

func (l *ledger) open(b *Buf) *record {
	l.seq++
	r := &record{seq: l.seq}
	l.live[b] = r
	return r
}

func (l *ledger) close(b *Buf) {
	if b.debug != nil {
		b.debug.trail = append(b.debug.trail, "last Release at "+caller())
	}
	delete(l.live, b)
}

func (l *ledger) leaks() []string {
	if l == nil {
		return nil
	}
	records := make([]*record, 0, len(l.live))
	for _, r := range l.live {
		records = append(records, r)
	}
	sort.Slice(records, func(i, j int) bool { return records[i].seq < records[j].seq })
	var out []string
	for _, r := range records {
		out = append(out, strings.Join(r.trail, "; "))
	}
	return out
}

func (b *Buf) note(op string) {
	if b.debug != nil && len(b.debug.trail) < 8 {
		b.debug.trail = append(b.debug.trail, op+" at "+caller())
	}
}

func (r *record) where() string {
	if r == nil {
		return ""
	}
	return ": " + strings.Join(r.trail, "; ")
}

// poison overwrites memory that nobody may look at any more.
func (b *Buf) poison() {
	for i := range b.mem {
		b.mem[i] = 0xDB
	}
}

// caller names the functions that led to a call of this package, nearest first.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	var names []string
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "weir/buffer.") {
			names = append(names, fmt.Sprintf("%s:%d", f.Function, f.Line))
		}
		if !more || len(names) == 5 {
			return strings.Join(names, " < ")
		}
	}
}
