//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/servertest"
)

// TestMain lets the test binary be a server's process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every way serves all connections, each on one loop.
func TestEveryWayServes(t *testing.T) {
	const loops, connections = 3, 30
	all, err := rows("")
	require.NoError(t, err)
	for _, r := range all {
		t.Run(r.way+"/"+string(r.transport), func(t *testing.T) {
			if r.transport != "" {
				servertest.Need(t, r.transport)
			}
			var stderr bytes.Buffer
			cfg := config{loops: loops, connections: connections, clients: 4, window: time.Millisecond}
			m, err := measure(cfg, r, &stderr)
			require.NoError(t, err, "%s", stderr.String())
			assert.Len(t, m.spread, loops)
			assert.Len(t, m.two, 2)
			if r.way == refusedWay {
				assert.Zero(t, sum(m.spread)+sum(m.two), "nobody becomes a channel")
			} else {
				assert.Equal(t, connections, sum(m.spread))
				assert.Equal(t, few, sum(m.two))
			}
			assert.Positive(t, m.wakeups)
			assert.Positive(t, m.rate)
			assert.Positive(t, m.cpu)
			assert.Positive(t, m.latency)
			assert.Empty(t, stderr.String())
		})
	}
}

// The point of the program: all loops wake up for each connection. On a busy machine some wake up for two at once.
func TestTheHerdIsSeen(t *testing.T) {
	const loops = 6
	cfg := config{loops: loops, connections: 100, clients: 1, window: time.Millisecond}
	m, err := measure(cfg, row{way: "naive"}, os.Stderr)
	require.NoError(t, err)
	assert.Greater(t, m.wakeups, 2.0)
	assert.NotEqual(t, -1.0, m.failed, "failed accepts are counted")
}

func sum(all []int) (n int) {
	for _, v := range all {
		n += v
	}
	return n
}

func TestBadArgumentsAreRefused(t *testing.T) {
	for want, args := range map[string]string{
		`no way "herds"`: "-ways naive,herds",
		"not positive":   "-loops 0",
		"too many":       "more",
		`no way "none"`:  "-serve none",
		"not defined":    "-rows 1",
	} {
		err := run(strings.Fields(args), strings.NewReader(""), io.Discard, io.Discard)
		assert.ErrorContains(t, err, want, args)
	}
}

func TestTableIsMarkdown(t *testing.T) {
	cfg := config{loops: 2, connections: 10, clients: 3, window: time.Second}
	table := newTable(cfg)
	table.add(row{way: "naive"}, measurement{wakeups: 8, failed: 0.25, spread: []int{3, 2}, two: []int{20, 0}})
	table.add(row{"reuseport", weir.Uring}, measurement{failed: -1, cpu: 1234, rate: 10, latency: 1234567})
	var out bytes.Buffer
	require.NoError(t, table.write(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 6)
	assert.Equal(t, "| naive | epoll | 8.00 | 0.25 | 3/2 = 1.50 | 0.0 µs | 0 | 0s | 20/0 |", lines[4])
	assert.Equal(t, "| reuseport | uring | 0.00 | - | - | 1.2 µs | 10 | 1.23ms | - |", lines[5])
	assert.Equal(t, strings.Count(lines[2], "|"), strings.Count(lines[4], "|"))
}
