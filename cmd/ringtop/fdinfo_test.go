package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What Linux 6.18 prints of a ring with something in each list.
const busyRing = "pos:\t0\nflags:\t02000002\nmnt_id:\t17\nino:\t7550588\nSqMask:\t0x7\nSqHead:\t9\nSqTail:\t11\n" +
	"CachedSqHead:\t9\nCqMask:\t0xf\nCqHead:\t3\nCqTail:\t19\nCachedCqTail:\t19\nSQEs:\t2\n" +
	"    1: opcode:READ, fd:4, flags:0, off:0, addr:0x7f00, rw_flags:0x0, buf_index:0 user_data:18446744073709551615\n" +
	"    2: opcode:NOP, fd:-1, flags:0, off:0, addr:0x0, rw_flags:0x0, buf_index:0 user_data:1\n" +
	"CQEs:\t16\n    3: user_data:1, res:-125, flags:0\n12345: user_data:1, res:0, flags:0\n" +
	"SqThread:\t77\nSqThreadCpu:\t1\nSqTotalTime:\t10\nSqWorkTime:\t5\n" +
	"UserFiles:\t3\n    0: /srv/a: b\n    2: anon_inode:[eventpoll]\nUserBufs:\t1\n    0: 0x7f0000000000/4096\n" +
	"PollList:\n  op=6, task_works=0\n  op=22, task_works=0\n" +
	"CqOverflowList:\n  user_data=7, res=0, flags=0\n  user_data=8, res=-105, flags=2\n  user_data=9, res=1, flags=0\n" +
	"NAPI:\tdisabled\n"

func TestRingIsParsed(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       Ring
	}{
		{"Linux 6.18", busyRing, Ring{
			Queues: true, SQ: Queue{8, 9, 11}, CQ: Queue{16, 3, 19}, Overflow: 3, Polls: 2, Files: 3, Buffers: 1, Poller: 77,
			inode: "7550588",
		}},
		// Linux 5.18 to 6.5: two tabs, opcodes as numbers, no NAPI.
		{
			"two tabs", "SqMask:\t\t0x7\nSqHead:\t4294967295\nSqTail:\t1\nCachedSqHead:\t4294967295\nCqMask:\t0xf\n" +
				"CqHead:\t4294967290\nCqTail:\t4\nCachedCqTail:\t4\nSQEs:\t2\n    7: opcode:22, fd:4, flags:0, user_data:1\n" +
				"CQEs:\t10\n   10: user_data:1, res:0, flag:0\nSqThread:\t-1\nSqThreadCpu:\t-1\nUserFiles:\t0\n" +
				"UserBufs:\t0\nPollList:\nCqOverflowList:\n  user_data=7, res=0, flags=0\n",
			Ring{
				Queues: true, SQ: Queue{8, math.MaxUint32, 1}, CQ: Queue{16, math.MaxUint32 - 5, 4}, Overflow: 1, Poller: -1,
			},
		},
		// Before Linux 5.18: no queues. The last line of the list is cut off as a reader may see it.
		{
			"no queues", "pos:\t0\nflags:\t02000002\nmnt_id:\t13\nSqThread:\t-1\nSqThreadCpu:\t-1\nUserFiles:\t2\n" +
				"    0: socket:[1]\n    1: <none>\nUserBufs:\t1\n    0: 0x7f0000000000/16\nPersonalities:\n    1\n" +
				"PollList:\n  op=6, task_works=0",
			Ring{Files: 2, Buffers: 1, Polls: 1, Poller: -1},
		},
		{"the lock was held", "pos:\t0\nflags:\t02000002\nmnt_id:\t17\nino:\t7550588\n", Ring{Poller: -1, inode: "7550588", locked: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseRing(strings.NewReader(tc.text))
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestQueueUseCountsAcrossTheWrap(t *testing.T) {
	assert.Equal(t, uint32(0), Queue{8, 5, 5}.Used())
	assert.Equal(t, uint32(8), Queue{8, math.MaxUint32 - 3, 4}.Used())
}

func TestBadFdinfoIsAnErrorWithItsField(t *testing.T) {
	for text, want := range map[string]string{
		"SqMask:\tx\n":                      "SqMask",
		"CqTail:\t4294967296\n":             "CqTail",
		"CqHead:\t-1\n":                     "CqHead",
		"UserFiles:\tmany\n":                "UserFiles",
		"":                                  "empty",
		"SqThread:\t99999999999999999999\n": "SqThread",
	} {
		_, err := ParseRing(strings.NewReader(text))
		assert.ErrorContains(t, err, want, "%q", text)
	}
}

// lines is a file of n lines that is made while it is read.
type lines struct {
	line string
	left int
	rest []byte
}

func (l *lines) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		if l.left == 0 {
			return 0, io.EOF
		}
		l.left--
		l.rest = []byte(l.line)
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

func TestLongListsAreCountedNotKept(t *testing.T) {
	const n = 300_000
	list := &lines{line: "  user_data=7, res=0, flags=0\n", left: n}
	var ring Ring
	var err error
	allocated := testing.AllocsPerRun(1, func() {
		list.left = n
		ring, err = ParseRing(io.MultiReader(strings.NewReader("CqOverflowList:\n"), list))
	})
	require.NoError(t, err)
	assert.Equal(t, n, ring.Overflow)
	assert.Less(t, allocated, float64(3*n), "a line costs no more than itself")
}

func TestALineTooLongIsAnError(t *testing.T) {
	for _, n := range []int{maxLine - 2, maxLine - 1, maxLine, maxLine + 1} {
		_, err := ParseRing(strings.NewReader(" " + strings.Repeat("x", n-1) + "\n"))
		assert.Equal(t, n >= maxLine, err != nil, "%d bytes: %v", n, err)
	}
}

func FuzzParseRing(f *testing.F) {
	f.Add(busyRing)
	f.Fuzz(func(t *testing.T, text string) {
		ring, err := ParseRing(strings.NewReader(text))
		if err == nil && ring.Overflow+ring.Polls > strings.Count(text, "\n")+1 {
			t.Errorf("%d entries in %q", ring.Overflow+ring.Polls, text)
		}
		_ = fmt.Sprint(ring.SQ.Used(), ring.CQ.Used())
	})
}
