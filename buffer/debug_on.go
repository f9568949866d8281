//go:build invariants

package buffer

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

const (
	// reuseForbidden keeps released headers out of circulation, so that a use after release is always seen.
	reuseForbidden = true
	poisonByte     = 0xDB
	maxTrail       = 8 // calls that a record remembers before the last Release
	maxFrames      = 5 // callers that it names for each
)

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

// newRecord returns the record of a Buf outside any pool.
func newRecord(op string) *record {
	r := &record{}
	if op != "" {
		r.trail = append(r.trail, op+" at "+caller())
	}
	return r
}

// where tells the history for a panic.
func (r *record) where() string {
	if r == nil || len(r.trail) == 0 {
		return ""
	}
	return ": " + strings.Join(r.trail, "; ")
}

func newLedger() *ledger { return &ledger{live: map[*Buf]*record{}} }

func (l *ledger) open(b *Buf) *record {
	l.seq++
	r := &record{seq: l.seq}
	l.live[b] = r
	return r
}

func (l *ledger) close(b *Buf) { delete(l.live, b) }

func (l *ledger) leaks() []string {
	if l == nil {
		return nil
	}
	records := make([]*record, 0, len(l.live))
	for _, r := range l.live { //weir:unordered sorted below
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b *record) int { return cmp.Compare(a.seq, b.seq) })
	var out []string
	for _, r := range records {
		out = append(out, strings.Join(r.trail, "; "))
	}
	return out
}

// note adds op and who called it to b's history. The last entry is always the newest.
func (b *Buf) note(op string) {
	if b.debug == nil {
		return
	}
	if len(b.debug.trail) == maxTrail {
		b.debug.trail = b.debug.trail[:maxTrail-1]
	}
	b.debug.trail = append(b.debug.trail, op+" at "+caller())
}

// poison overwrites memory that nobody may look at any more.
func poison(mem []byte) {
	for i := range mem {
		mem[i] = poisonByte
	}
}

// checkPoison panics when somebody wrote to a free block.
func checkPoison(mem []byte) {
	for i, c := range mem {
		if c != poisonByte {
			panic(fmt.Sprintf("buffer: byte %d of a block of %d was written after the last Release", i, len(mem)))
		}
	}
}

// caller names the functions that led to a call of this package, nearest first.
func caller() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	var names []string
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "weir/buffer.") {
			names = append(names, fmt.Sprintf("%s:%d", f.Function, f.Line))
		}
		if !more || len(names) == maxFrames {
			return strings.Join(names, " < ")
		}
	}
}
