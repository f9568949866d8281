//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/examples/ingest/internal/load"
	"github.com/weirnet/weir/examples/ingest/internal/sink"
	"github.com/weirnet/weir/internal/testenv"
)

// tcpInfo returns what the kernel says about a connection (tcp(7), TCP_INFO).
func tcpInfo(t *testing.T, c net.Conn) (info *unix.TCPInfo) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}))
	require.NoError(t, err)
	return info
}

// Clients that never stop, and a sink that stands still: the clients' sockets block, the memory stays where it is, and
// every message arrives when the sink is back.
func TestSlowSink(t *testing.T) {
	const (
		connections, frames  = 8, 20_000
		high, perConnection  = 1 << 20, 256 << 10
		slack                = 48 << 20 // of the collector, for what becomes garbage
		padding, socketBytes = 100, 16 << 10
	)
	for _, transport := range []string{"epoll", "uring"} {
		t.Run("transport="+transport, func(t *testing.T) {
			p := startOn(t, transport, "-high", fmt.Sprint(high), "-rcvbuf", fmt.Sprint(socketBytes), "-grant", "4KiB")
			before := p.rss()
			p.command("rate %d", sink.Standstill)
			var clients []*load.Client
			sockets := make(chan net.Conn, connections)
			for i := range connections {
				protocol, format := "syslog", load.Format(load.SyslogCounted)
				if i%2 == 1 {
					protocol, format = "json", load.JSON
				}
				clients = append(clients, &load.Client{
					Address: p.at[protocol], Format: format, Number: uint64(i), Frames: frames, PaddingBytes: padding,
					SendBufferBytes: socketBytes, Connected: func(c net.Conn) { sockets <- c },
				})
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			wait := run(ctx, clients)
			p.until("all are paused", func(r report) bool { return r.Paused == connections && r.Level == "HIGH" })
			for range connections {
				c := <-sockets
				require.Eventually(t, func() bool {
					info := tcpInfo(t, c)
					return info.Snd_wnd == 0 && info.Notsent_bytes > 0 // the peer takes nothing, and something waits
				}, patience, 20*time.Millisecond, "the window is closed")
			}
			standing := p.command("report")
			assert.Zero(t, standing.Delivered)
			assert.LessOrEqual(t, p.rss()-before, high+connections*perConnection+slack)
			again := p.command("report")
			assert.Equal(t, standing.Queued, again.Queued, "nothing is read")
			p.command("rate 0")
			require.NoError(t, wait())
			p.until("all have come", func(r report) bool { return r.Delivered == connections*frames && r.Open == 0 })
			assert.LessOrEqual(t, p.rss()-before, high+connections*perConnection+slack)
			assert.Equal(t, fmt.Sprintf("delivered %d of %d, dropped 0, lost 0", connections*frames,
				connections*frames), p.stop())
			tally := p.tally(nil)
			for _, c := range clients {
				assert.Equal(t, frames, tally.Count(c.Number))
			}
			assert.Zero(t, tally.Twice)
		})
	}
}

// startOn starts a server on a transport that the machine has.
func startOn(t *testing.T, transport string, args ...string) *process {
	t.Helper()
	if transport == "uring" {
		cfg, err := parseConfig([]string{
			"-transport", "uring", "-syslog", "127.0.0.1:0", "-graphite=", "-statsd=", "-json=", "-sink", t.TempDir(),
		}, nil)
		require.NoError(t, err)
		s, err := newServer(cfg, quietLogger())
		require.NoError(t, err)
		_, err = s.weir.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, s.close(context.Background(), patience))
		testenv.Require(t, "uring", err)
	}
	return startIngest(t, append([]string{"-transport", transport}, args...)...)
}

// Where traffic tolerates loss, reading goes on while the sink stands still, and what is dropped is whole frames,
// counted.
func TestLossTolerant(t *testing.T) {
	const connections, frames = 4, 50_000
	p := startIngest(t, "-high", "1MiB", "-lossy", "graphite,statsd")
	before := p.rss()
	p.command("rate %d", sink.Standstill)
	var clients []*load.Client
	for i := range connections {
		protocol, format := "graphite", load.Format(load.Graphite)
		if i%2 == 1 {
			protocol, format = "statsd", load.Statsd
		}
		clients = append(clients, &load.Client{
			Address: p.at[protocol], Format: format, Number: uint64(i), Frames: frames, PaddingBytes: 50,
		})
	}
	require.NoError(t, run(context.Background(), clients)(), "clients do not wait")
	r := p.until("all is read", func(r report) bool { return r.Dropped+r.Queued == connections*frames })
	assert.Positive(t, r.Dropped)
	assert.Zero(t, r.Delivered)
	assert.Equal(t, "HIGH", r.Level)
	assert.LessOrEqual(t, p.rss()-before, 64<<20)
	c, err := net.Dial("tcp", p.at["statsd"])
	require.NoError(t, err)
	_, err = c.Write([]byte("one.more:1|c\n"))
	require.NoError(t, err)
	r = p.until("one more is dropped", func(now report) bool { return now.Dropped == r.Dropped+1 })
	assert.EqualValues(t, 1, r.Open)
	assert.Zero(t, r.Paused, "it goes on")
	require.NoError(t, c.Close())
	p.command("rate 0")
	r = p.until("all is stored", func(r report) bool { return r.Dropped+r.Delivered == connections*frames+1 })
	p.stop()
	tally := p.tally(nil)
	assert.EqualValues(t, connections*frames+1, uint64(tally.Lines)+r.Dropped)
	assert.Zero(t, tally.Twice)
	assert.Zero(t, r.Malformed)
}

// A disk that is full is pressure, and said; when there is room again, everything arrives once.
func TestDiskFull(t *testing.T) {
	const frames = 40_000
	disk := t.TempDir()
	testenv.Require(t, "mount", syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	p := startIngest(t, "-sink", disk, "-high", "1MiB")
	p.dir = disk
	wait := run(context.Background(),
		[]*load.Client{{Address: p.at["syslog"], Format: load.SyslogLine, Number: 9, Frames: frames}})
	r := p.until("the level is high", func(r report) bool { return r.Level == "HIGH" && r.SinkError != "" })
	assert.Contains(t, r.SinkError, "no space left on device")
	require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
	require.NoError(t, wait())
	p.until("all have come", func(r report) bool { return r.Delivered == frames && r.SinkError == "" })
	p.stop()
	assert.Contains(t, p.errs.String(), "sink fails")
	assert.Contains(t, p.errs.String(), "sink works again")
	tally := p.tally(nil)
	assert.Equal(t, frames, tally.Count(9))
	assert.Zero(t, tally.Twice)
}

// In the middle of a load: what was taken is delivered, in order and without a gap, and the server says how much.
func TestTerminateDrains(t *testing.T) {
	const connections = 4
	p := startIngest(t, "-high", "1MiB", "-sink-rate", "8MB")
	var clients []*load.Client
	for i := range connections {
		clients = append(clients, &load.Client{Address: p.at["syslog"], Format: load.SyslogCounted, Number: uint64(i)})
	}
	ctx, cancel := context.WithCancel(context.Background())
	wait := run(ctx, clients)
	p.until("the load is under way", func(r report) bool { return r.Delivered > 20_000 && r.Rises > 0 })
	last := p.stop()
	cancel()
	_ = wait() // they are cut off
	tally := p.tally(nil)
	assert.Equal(t, fmt.Sprintf("delivered %d of %d, dropped 0, lost 0", tally.Lines, tally.Lines), last)
	assert.Zero(t, tally.Twice)
	for _, c := range clients {
		assert.Empty(t, tally.Missing(c.Number, uint64(tally.Count(c.Number))), "no gap")
		assert.Positive(t, tally.Count(c.Number))
	}
}

// Who stops sending when the server says that it leaves loses nothing.
func TestClientsThatLeaveInTimeLoseNothing(t *testing.T) {
	const frames = 2000
	p := startIngest(t, "-sink-rate", "2MB")
	c, err := net.Dial("tcp", p.at["json"])
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	var all []byte
	for i := range frames {
		all = load.JSON(all, load.AppendMark(nil, 1, uint64(i), strings.Repeat("x", 500)))
	}
	_, err = c.Write(all)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("delivered %d of %d, dropped 0, lost 0", frames, frames), p.stop())
	assert.Equal(t, frames, p.tally(nil).Count(1))
}

// The second signal ends the process although the sink is dead, and it says what is lost.
func TestASecondSignalSaysWhatIsLost(t *testing.T) {
	p := startIngest(t, "-drain", "1h")
	p.command("rate %d", sink.Standstill)
	c, err := net.Dial("tcp", p.at["graphite"])
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = c.Write([]byte("a 1 2\n"))
	require.NoError(t, err)
	p.until("it has come", func(r report) bool { return r.Queued == 1 })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	for !strings.HasPrefix(p.line(), "draining") {
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	assert.Equal(t, "delivered 0 of 1, dropped 0, lost 0", p.line())
	var status *exec.ExitError
	require.ErrorAs(t, p.cmd.Wait(), &status)
	assert.Equal(t, 1, status.ExitCode())
	assert.Contains(t, p.errs.String(), `msg="a second signal: what is not delivered is lost" records=1`)
	assert.Contains(t, p.errs.String(), "gave up after a second signal: 1 records, ")
}

// A dead sink does not keep a server from ending: it says what it could not deliver.
func TestADeadSinkIsSaid(t *testing.T) {
	p := startIngest(t, "-drain", "300ms")
	p.command("rate %d", sink.Standstill)
	c, err := net.Dial("tcp", p.at["graphite"])
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = c.Write([]byte("a 1 2\nb 1 2\n"))
	require.NoError(t, err)
	p.until("they have come", func(r report) bool { return r.Queued == 2 })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	var last string
	for line := range p.lines {
		last = line
	}
	assert.Error(t, p.cmd.Wait())
	assert.Equal(t, "delivered 0 of 2, dropped 0, lost 0", last)
	assert.Contains(t, p.errs.String(), "drain: gave up after 300ms: 2 records, ")
	assert.Contains(t, p.errs.String(), " bytes not delivered")
	assert.NotContains(t, p.errs.String(), "context deadline exceeded")
}

// What the sink has no room for is lost, counted before it is forgotten, and makes the program fail.
func TestLostFramesAreAnError(t *testing.T) {
	p := startIngest(t, "-high", "2KiB", "-most", "8KiB", "-store", "1KiB")
	send(t, p.at["graphite"], []byte("a 1 2\n"+strings.Repeat("x", 9000)+" 1 2\n"))
	p.until("one is lost", func(r report) bool { return r.Lost > 0 && r.Open == 0 })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	var last string
	for line := range p.lines {
		last = line
	}
	assert.Error(t, p.cmd.Wait())
	// Both may be in one batch.
	assert.Regexp(t, "^delivered (0 of 2, dropped 0, lost 2|1 of 2, dropped 0, lost 1)$", last)
	assert.Contains(t, p.errs.String(), "ingest: frames lost: ")
	assert.Regexp(t, "ingest: [12] frames lost: sink: queue full", p.errs.String())
}

// A listener that ends by itself is no reason to stay when there is no other.
func TestAServerWithoutListenersEnds(t *testing.T) {
	cfg, err := parseConfig([]string{
		"-sink", t.TempDir(), "-syslog", "127.0.0.1:0", "-graphite=", "-statsd",
		"127.0.0.1:0", "-json=",
	}, nil)
	require.NoError(t, err)
	cfg.transport = "none"
	s, err := newServer(cfg, quietLogger())
	require.NoError(t, err)
	assert.ErrorIs(t, s.run(until(t.Context()), io.Discard), errNoListener)
}
