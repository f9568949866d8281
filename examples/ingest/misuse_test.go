//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// send sends bytes on a connection of its own, then FIN, and waits until the server has closed it.
func send(t *testing.T, address string, p []byte) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = c.Write(p)
	if err == nil {
		err = c.(*net.TCPConn).CloseWrite()
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, c)
	} // else the server has closed it already
}

func TestAFrameThatIsTooLongIsSkippedAndCounted(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for protocol, in := range map[string]string{
		"graphite": "a 1 2\n" + long + "\nb 1 2\n",
		"statsd":   "a:1|c\n" + long + "\nb:1|c\n",
		"syslog":   "<13>1 - - - - - -\n" + fmt.Sprintf("%d <%s", len(long)+1, long) + "17 <13>1 - - - - - -",
		"json":     "\x00\x00\x00\x02{}\x00\x00\x13\x88" + long + "\x00\x00\x00\x02[]",
	} {
		t.Run("protocol="+protocol, func(t *testing.T) {
			p := startIngest(t, "-frame", "1000")
			send(t, p.at[protocol], []byte(in))
			r := p.until("the others have come", func(r report) bool { return r.Delivered == 2 && r.Open == 0 })
			assert.EqualValues(t, 1, r.TooLong)
			assert.Zero(t, r.Malformed)
			assert.Equal(t, "delivered 2 of 2, dropped 0, lost 0, 1 too long", p.stop())
		})
	}
}

func TestAClientThatDiesInAFrameLeavesNoHalfOne(t *testing.T) {
	p := startIngest(t)
	for protocol, in := range map[string]string{
		"graphite": "a 1 2\nb 1 ", "statsd": "a:1|c\nb:1", "syslog": "17 <13>1 - - - - - -99 <13>",
		"json": "\x00\x00\x00\x02{}\x00\x00\x00\x09{",
	} {
		send(t, p.at[protocol], []byte(in))
	}
	r := p.until("the whole ones have come", func(r report) bool { return r.Delivered == 4 && r.Open == 0 })
	assert.EqualValues(t, 4, r.Truncated)
	// And one that is reset while its frames are on their way.
	c, err := net.Dial("tcp", p.at["graphite"])
	require.NoError(t, err)
	_, err = c.Write([]byte("c 1 2\nd"))
	require.NoError(t, err)
	p.until("it is read", func(r report) bool { return r.Delivered == 5 })
	require.NoError(t, c.(*net.TCPConn).SetLinger(0))
	require.NoError(t, c.Close())
	r = p.until("it is gone", func(r report) bool { return r.Open == 0 })
	assert.Equal(t, fmt.Sprintf("delivered 5 of 5, dropped 0, lost 0, %d truncated", r.Truncated), p.stop())
	assert.Len(t, p.stored(), 5)
}

// Whatever comes, the server lives, keeps what it can, and serves others.
func TestGarbageHarmsNobody(t *testing.T) {
	p := startIngest(t, "-frame", "4KiB")
	before := p.rss()
	random := rand.New(rand.NewPCG(1, 2))
	garbage := make([]byte, 1<<20)
	for i := range garbage {
		garbage[i] = byte(random.Uint32())
	}
	for _, protocol := range protocols() {
		for _, in := range [][]byte{
			garbage, bytes.Repeat([]byte{0}, 1<<20), bytes.Repeat([]byte{0xff}, 1<<20), bytes.Repeat([]byte("9"),
				1<<20),
			bytes.Repeat([]byte("\n"), 1<<20), bytes.Repeat([]byte("<"), 1<<20), bytes.Repeat([]byte("[{\"a\":"),
				1<<17),
			{0x80},
		} {
			send(t, p.at[protocol.name], in)
		}
	}
	send(t, p.at["graphite"], []byte("after.all.this 1 2\n"))
	p.until("the good one has come", func(report) bool {
		for _, line := range p.stored() {
			if bytes.Contains(line, []byte(`"path":"after.all.this"`)) {
				return true
			}
		}
		return false
	})
	assert.Less(t, p.rss()-before, 128<<20)
	r := p.command("report")
	assert.Zero(t, r.Lost)
	p.stop()
}

func TestFlagsThatCannotWorkAreRefused(t *testing.T) {
	const aSize = "want a size such as 64MiB"
	for _, c := range []struct {
		flag, value string
		says        string // beside the flag and its value
	}{
		{"low", "64MiB", "low < high"},
		{"most", "64MiB", "high < most"},
		{"high", "1", "0 < low"},
		{"high", "much", aSize},
		{"high", "-5", aSize},
		{"memory", "abc", aSize},
		{"frame", "1e3", aSize},
		{"high", "2TiB", "at most"},
		{"frame", "0", "want 1 to"},
		{"frame", "2GiB", "want 1 to"},
		{"frame", "1073741821", "want 1 to"},
		{"grant", "0", "want 1 to"},
		{"batch", "0", "more than 0"},
		{"inflight", "0", "want 1 to 1024"},
		{"inflight", "1025", "want 1 to 1024"},
		{"inflight", "9999999", "want 1 to 1024"},
		{"store", "1GiB", "-most at most"},
		{"transport", "foo", "auto, epoll or uring"},
		{"loops", "-1", "0 to"},
		{"workers", "-1", "0 to"},
		{"rcvbuf", "2GiB", "at most"},
		{"gone", "-1s", "more than 0"},
		{"gone", "0s", "more than 0"},
		{"drain", "-1s", "0 or more"},
		{"stats", "-1s", "0 or more"},
		{"file-size", "0", "more than 0"},
		{"file-keep", "-1", "0 or more"},
		{"sync", "sometimes", "always"},
		{"nats-message", "0", "more than 0"},
		{"lossy", "morse", "none of"},
		{"lossy", "statsd,,syslog", "none of"},
		{"sink", "nats://", "want nats://host:port"},
		{"sink", "nats://[", "host"},
		{"sink", "http://x", "want nats://host:port"},
	} {
		_, err := parseConfig([]string{"-" + c.flag, c.value}, io.Discard)
		if assert.Error(t, err, "-%s %s", c.flag, c.value) {
			assert.Contains(t, err.Error(), "-"+c.flag)
			assert.Contains(t, err.Error(), c.value)
			assert.Contains(t, err.Error(), c.says)
		}
	}
	for _, args := range [][]string{{"more"}, {"-nosuch"}, {"-syslog=", "-graphite=", "-statsd=", "-json="}} {
		_, err := parseConfig(args, io.Discard)
		assert.Error(t, err, "%v", args)
	}
	cfg, err := parseConfig([]string{"-sink", t.TempDir(), "-graphite=", "-statsd=", "-json=", "-syslog", "nowhere:x"},
		io.Discard)
	require.NoError(t, err)
	_, err = newServer(cfg, quietLogger())
	assert.Error(t, err)
}

func TestFlagsAtTheirBoundsWork(t *testing.T) {
	for _, args := range [][]string{
		{"-frame", "1073741820"},
		{"-inflight", "1024"},
		{"-inflight", "1"},
		{"-lossy", "statsd, syslog"},
		{"-lossy="},
		{"-drain", "0"},
		{"-sink", "nats://a,tls://u:p@b:1"},
	} {
		cfg, err := parseConfig(args, io.Discard)
		require.NoError(t, err, "%v", args)
		for _, p := range protocols() {
			_, err := p.framer(int(cfg.frame))
			assert.NoError(t, err)
		}
	}
}

func TestTheDemonstration(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s")
	}
	cfg, err := parseConfig([]string{"-demo", "-sink", t.TempDir()}, io.Discard)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, demo(until(t.Context()), cfg, &out))
	normal, high, again := strings.Index(out.String(), "NORMAL"), strings.Index(out.String(),
		"HIGH"), strings.LastIndex(out.String(), "NORMAL")
	assert.True(t, normal >= 0 && normal < high && high < again, out.String())
}
