//go:build linux

package main

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/examples/ingest/internal/sink"
)

// A line of ten bytes becomes one of more than a hundred. Neither the clients' number nor what their frames become
// makes more wait than there is room for, so that nobody is closed and nothing is lost.
func TestManyClientsWithShortLinesLoseNothing(t *testing.T) {
	for _, c := range []struct {
		transport             string
		clients, frames, high int
	}{{"epoll", 300, 400, 128 << 10}, {"uring", 300, 400, 128 << 10}, {"epoll", 8, 10_000, 1 << 20}, {
		"uring", 8,
		10_000, 1 << 20,
	}} {
		t.Run(fmt.Sprintf("transport=%s/clients=%d", c.transport, c.clients), func(t *testing.T) {
			clients, frames := c.clients, c.frames
			// the frame with which each finds that it is full
			slack := clients * (frameOverheadBytes + len("c299.9999 1 1"))
			p := startOn(t, c.transport, "-high", fmt.Sprint(c.high), "-store", "16KiB")
			p.command("rate %d", sink.Standstill)
			conns := make([]net.Conn, clients)
			for i := range conns {
				c, err := net.Dial("tcp", p.at["graphite"])
				require.NoError(t, err)
				require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
				conns[i] = c
				t.Cleanup(func() { _ = c.Close() })
			}
			for i, c := range conns { // the kernel takes all of it
				var lines []byte
				for n := range frames {
					lines = fmt.Appendf(lines, "c%d.%d 1 1\n", i, n)
				}
				_, err := c.Write(lines)
				require.NoError(t, err)
			}
			p.until("the level is high", func(r report) bool { return r.Level == "HIGH" })
			p.command("rate %d", 1<<20) // clients have many turns
			p.until("some have come", func(r report) bool { return r.Delivered > uint64(clients) })
			p.command("rate 0")
			r := p.until("all have come", func(r report) bool {
				return r.Lost > 0 ||
					r.Delivered == uint64(clients*frames)
			})
			assert.Zero(t, r.Lost)
			assert.Zero(t, r.Failed)
			assert.Less(t, r.MostQueued, c.high+slack)
			for _, c := range conns {
				require.NoError(t, c.Close())
			}
			p.stop()
			seen := map[string]bool{}
			for _, line := range p.stored() {
				seen[string(line[len(`{"at":"2006-01-02T15:04:05.000Z",`):])] = true
			}
			assert.Len(t, seen, clients*frames)
		})
	}
}
