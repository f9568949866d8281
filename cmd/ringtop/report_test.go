package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reported is the report on one ring that was seen twice, two seconds apart.
func reported(before, now Ring) RingReport {
	at := time.Unix(1000, 0)
	r := newReport(&Process{}, sample{at: at, rings: []Ring{before}},
		sample{at: at.Add(2 * time.Second), rings: []Ring{now}}, "")
	return r.Rings[0]
}

func TestRatesOfRings(t *testing.T) {
	before := Ring{
		FD: 5, Queues: true, inode: "1",
		SQ: Queue{Entries: 8, Head: math.MaxUint32 - 1, Tail: 0}, CQ: Queue{Entries: 16, Head: 10, Tail: 12},
	}
	now := before
	now.SQ.Head, now.CQ.Tail = 4, 14
	got := reported(before, now)
	assert.Equal(t, 3.0, got.Submitted, "six entries, across the wrap")
	assert.Equal(t, 1.0, got.Completed)

	for what, change := range map[string]func(*Ring){
		"another ring on the descriptor": func(r *Ring) { r.inode = "2" },
		"another descriptor":             func(r *Ring) { r.FD = 6 },
		"locked at the second look":      func(r *Ring) { r.Queues = false },
	} {
		other := now
		change(&other)
		got := reported(before, other)
		assert.Zero(t, got.Submitted, what)
		assert.Zero(t, got.Completed, what)
	}
	before.Queues = false
	assert.Zero(t, reported(before, now).Submitted, "locked at the first look")
}

func TestOpcodesAreThoseOfTheInterval(t *testing.T) {
	names := []string{"NOP", "READ", "SEND"}
	earlier := Activity{names, []counters{{Submitted: 10}, {Submitted: 5}, {}, {}}}
	later := Activity{names, []counters{{Submitted: 10}, {Submitted: 9, Completed: 8, Failed: 2}, {Submitted: 20}, {Posted: 2}}}
	later.all[1].Latency[bucket(1000)] = 8
	at := time.Unix(1000, 0)
	r := newReport(&Process{}, sample{at: at, activity: earlier}, sample{at: at.Add(2 * time.Second), activity: later}, "")
	require.Len(t, r.Opcodes, 3, "what did nothing is left out")
	assert.Equal(t, "SEND", r.Opcodes[0].Opcode, "the busiest first")
	assert.Equal(t, 10.0, r.Opcodes[0].Submitted)
	read := r.Opcodes[1]
	assert.Equal(t, []float64{2, 4, 1}, []float64{read.Submitted, read.Completed, read.Failed})
	assert.Equal(t, uint64(8), read.Measured)
	assert.Equal(t, int64(upper(bucket(1000))), read.P50)
	assert.Equal(t, unknownName, r.Opcodes[2].Opcode)
	require.Len(t, r.Latency, 1)
	assert.Equal(t, uint64(8), r.Latency[0].Count)
}
