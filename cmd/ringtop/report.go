package main

import (
	"cmp"
	"slices"
	"time"
)

// sample is what there was to see at one moment.
type sample struct {
	at       time.Time
	rings    []Ring
	threads  Threads
	activity Activity // empty without tracing
}

// Report is what happened between two samples; it is what -json prints.
type Report struct {
	PID     int     `json:"pid"`
	Command string  `json:"command"`
	Seconds float64 `json:"seconds"` // between the samples
	Workers int     `json:"io_wq_workers"`
	Pollers int     `json:"sq_poll_threads"`
	// Missing says why there are no opcodes; empty when there are.
	Missing string         `json:"missing,omitempty"`
	Rings   []RingReport   `json:"rings"`
	Opcodes []OpcodeReport `json:"opcodes,omitempty"`
	Latency []Octave       `json:"latency,omitempty"` // of all opcodes
}

// RingReport is one ring. Rates are 0 for a ring that was not there before.
type RingReport struct {
	FD int `json:"fd"`
	// Queues is whether the kernel showed the queues this time.
	Queues    bool    `json:"queues"`
	SQEntries uint32  `json:"sq_entries"`
	SQUsed    uint32  `json:"sq_used"`
	CQEntries uint32  `json:"cq_entries"`
	CQUsed    uint32  `json:"cq_used"`
	Overflow  int     `json:"overflow_list"`
	Polls     int     `json:"poll_list"`
	Files     int     `json:"registered_files"`
	Buffers   int     `json:"registered_buffers"`
	Poller    int     `json:"sq_thread"`
	Submitted float64 `json:"submitted_per_second"`
	Completed float64 `json:"completed_per_second"`
}

// OpcodeReport is one opcode, of all rings of the process.
type OpcodeReport struct {
	Opcode    string  `json:"opcode"`
	Submitted float64 `json:"submitted_per_second"`
	Completed float64 `json:"completed_per_second"` // with those that overflowed
	Posted    float64 `json:"posted_per_second"`    // completions that were not a request's last
	Failed    float64 `json:"failed_per_second"`
	Async     float64 `json:"io_wq_per_second"`
	Overflow  float64 `json:"overflow_per_second"`
	Measured  uint64  `json:"latencies"` // how many the quantiles are of
	P50       int64   `json:"p50_ns"`
	P99       int64   `json:"p99_ns"`
	Max       int64   `json:"max_ns"`
}

// unknownName stands for completions of no request that was seen, such as messages from other rings.
const unknownName = "(unknown)"

func newReport(p *Process, before, now sample, missing string) Report {
	seconds := now.at.Sub(before.at).Seconds()
	r := Report{
		PID: p.PID, Command: p.Command, Seconds: seconds, Missing: missing,
		Workers: now.threads.Workers, Pollers: now.threads.Pollers, Rings: []RingReport{},
	}
	for _, ring := range now.rings {
		r.Rings = append(r.Rings, newRingReport(ring, before.rings, seconds))
	}
	var all Histogram
	for i := range now.activity.all {
		c := now.activity.all[i]
		if i < len(before.activity.all) {
			c = c.since(&before.activity.all[i])
		}
		if c == (counters{}) {
			continue
		}
		name := unknownName
		if i < len(now.activity.names) {
			name = now.activity.names[i]
		}
		r.Opcodes = append(r.Opcodes, newOpcodeReport(name, &c, seconds))
		all.Add(&c.Latency)
	}
	slices.SortStableFunc(r.Opcodes, func(a, b OpcodeReport) int {
		return cmp.Compare(b.Submitted+b.Completed, a.Submitted+a.Completed)
	})
	r.Latency = all.Octaves()
	return r
}

func newRingReport(ring Ring, before []Ring, seconds float64) RingReport {
	r := RingReport{
		FD: ring.FD, Queues: ring.Queues, Overflow: ring.Overflow, Polls: ring.Polls,
		SQEntries: ring.SQ.Entries, SQUsed: ring.SQ.Used(), CQEntries: ring.CQ.Entries, CQUsed: ring.CQ.Used(),
		Files: ring.Files, Buffers: ring.Buffers, Poller: ring.Poller,
	}
	i := slices.IndexFunc(before, func(b Ring) bool { return b.FD == ring.FD && b.inode == ring.inode })
	if i < 0 || !ring.Queues || !before[i].Queues {
		return r
	}
	// The kernel moves the head of one queue and the tail of the other. They wrap around.
	r.Submitted = rate(uint64(ring.SQ.Head-before[i].SQ.Head), seconds)
	r.Completed = rate(uint64(ring.CQ.Tail-before[i].CQ.Tail), seconds)
	return r
}

func newOpcodeReport(name string, c *counters, seconds float64) OpcodeReport {
	return OpcodeReport{
		Opcode: name, Submitted: rate(c.Submitted, seconds), Completed: rate(c.Completed, seconds),
		Posted: rate(c.Posted, seconds), Failed: rate(c.Failed, seconds), Async: rate(c.Async, seconds),
		Overflow: rate(c.Overflow, seconds), Measured: c.Latency.Count(),
		P50: c.Latency.Quantile(0.5).Nanoseconds(), P99: c.Latency.Quantile(0.99).Nanoseconds(),
		Max: c.Latency.Quantile(1).Nanoseconds(),
	}
}

func rate(n uint64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// since returns what was counted after the earlier state.
func (c *counters) since(b *counters) counters {
	return counters{
		Submitted: c.Submitted - b.Submitted, Completed: c.Completed - b.Completed, Posted: c.Posted - b.Posted,
		Failed: c.Failed - b.Failed, Async: c.Async - b.Async, Overflow: c.Overflow - b.Overflow,
		Latency: c.Latency.Since(&b.Latency),
	}
}
