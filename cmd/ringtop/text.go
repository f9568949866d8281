package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// barWidth is how long the longest bar of the histogram is.
const barWidth = 40

// Text writes the report for people.
func (r Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "process %d (%s), %.1f s: io-wq workers %d, SQ poll threads %d\n\n",
		r.PID, printable(r.Command), r.Seconds, r.Workers, r.Pollers)
	r.ringTable(&b)
	switch {
	case r.Missing != "":
		fmt.Fprintf(&b, "\nNo opcodes, no latencies: %s\n", r.Missing)
	case len(r.Opcodes) == 0:
		b.WriteString("\nNothing was submitted or completed.\n")
	default:
		r.opcodeTable(&b)
		r.bars(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) ringTable(b *strings.Builder) {
	if len(r.Rings) == 0 {
		b.WriteString("No ring has a descriptor.\n")
		return
	}
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "ring\tSQ used\tof\tCQ used\tof\toverflow list\tpolls\tfiles\tbuffers\tsubmitted/s\tcompleted/s\t\n")
	for _, ring := range r.Rings {
		fmt.Fprintf(t, "%d\t", ring.FD)
		if ring.Queues {
			fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t%.0f\t\n", ring.SQUsed, ring.SQEntries, ring.CQUsed,
				ring.CQEntries, ring.Overflow, ring.Polls, ring.Files, ring.Buffers, ring.Submitted, ring.Completed)
		} else { // the kernel is too old, or the ring's lock was held
			fmt.Fprint(t, "-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t\n")
		}
	}
	t.Flush()
}

func (r Report) opcodeTable(b *strings.Builder) {
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t,
		"opcode\tsubmitted/s\tcompleted/s\tposted/s\tfailed/s\tio-wq/s\toverflow/s\tp50\tp99\tmax\t\n")
	for _, o := range r.Opcodes {
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t", o.Opcode, o.Submitted, o.Completed, o.Posted,
			o.Failed, o.Async, o.Overflow)
		if o.Measured == 0 {
			fmt.Fprint(t, "-\t-\t-\t\n")
		} else {
			fmt.Fprintf(t, "%s\t%s\t%s\t\n", nanos(o.P50), nanos(o.P99), nanos(o.Max))
		}
	}
	t.Flush()
}

func (r Report) bars(b *strings.Builder) {
	most := uint64(0)
	for _, o := range r.Latency {
		most = max(most, o.Count)
	}
	if most == 0 {
		return
	}
	b.WriteString("\nlatency from submission to completion, all opcodes\n")
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, o := range r.Latency {
		length := (o.Count*barWidth + most - 1) / most
		fmt.Fprintf(t, "up to %s\t%d\t %s\n", nanos(int64(min(o.ToNanos, 1<<63-1))), o.Count,
			strings.Repeat("#", int(length)))
	}
	t.Flush()
}

// nanos writes a duration with three digits: the buckets are no finer.
func nanos(n int64) string {
	d := time.Duration(n)
	for unit := time.Nanosecond; unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Minute).String()
}

// printable keeps a process's name, which it chooses itself, from moving the cursor.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, name)
}
