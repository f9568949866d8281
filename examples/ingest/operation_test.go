//go:build linux

package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/examples/ingest/internal/load"
	"github.com/weirnet/weir/examples/ingest/internal/sink"
)

// What other collectors were sent, in its framing. The rows name the reports.
func TestFramesThatOthersLost(t *testing.T) {
	const head = "<6>Sep  1 00:00:00 box logger: "
	many := strings.Repeat(head+"on\n", 500)
	for _, c := range []struct {
		id, protocol, in string
		delivered        int
		malformed        int
		says             string // last, behind delivered and dropped
		stored           []string
	}{
		{
			"report-02 rsyslog#1165, counted", "syslog",
			fromHex(t, "3633203c363e5365702031302030303a30303a303020626f78206c6f676765723a206869"+
				"210a09617420636f6d2e6578616d706c652e4128412e6a6176613a31290a"), 1, 0, "",
			[]string{`"message":"hi!\n\tat com.example.A(A.java:1)\n"`},
		},
		{
			"report-03 rsyslog#1165, lines", "syslog", many + head + "hi!\n\tat A(A.java:1)\n" + many, 1002, 1,
			", 1 malformed",
			[]string{`"message":"hi!"`, `"raw":"\tat A(A.java:1)"`},
		},
		{
			"report-04 fluentd#1270", "syslog", "<13>Sep  6 15:05:54 h app: last without LF", 1, 0, "",
			[]string{`"message":"last without LF"`},
		},
		{
			"report-05 fluentd#2982", "syslog", "35 " + head + "hi!\n" + "35 " + head + "hi!\n", 2, 0, "",
			[]string{`"message":"hi!\n"`},
		},
		{
			"report-05 a count that is too large", "syslog", strings.Repeat("35 "+head+"hi!", 3), 2, 1, ", 1 malformed",
			[]string{`"message":"hi!3"`, `"raw":"<6>Se"`},
		},
		{
			"lines, then counted", "syslog", head + "a\n12 b\n35 " + head + "hi!\n", 3, 1, ", 1 malformed",
			[]string{`"message":"a"`, `"raw":"12 b"`, `"message":"hi!\n"`},
		},
		{
			"report-15 carbon#58", "graphite", "m 151 1708082558.254\na 1 -1\na\t1\t1708082558\na b c 1\na 9% 1\n", 5, 2,
			", 2 malformed",
			[]string{`"time":1708082558.254`, `"time":-1`, `"raw":"a b c 1"`, `"raw":"a 9% 1"`},
		},
		{
			"report-13 carbon-c-relay#311", "graphite", "a.b;h=x;h=y 1 2\n", 1, 1, ", 1 malformed",
			[]string{`"raw":"a.b;h=x;h=y 1 2"`},
		},
	} {
		t.Run(c.id, func(t *testing.T) {
			p := startIngest(t)
			send(t, p.at[c.protocol], []byte(c.in))
			r := p.until("all have come", func(r report) bool {
				return r.Delivered >= uint64(c.delivered) &&
					r.Open == 0
			})
			assert.EqualValues(t, c.malformed, r.Malformed)
			assert.Equal(t, fmt.Sprintf("delivered %d of %d, dropped 0, lost 0%s", c.delivered, c.delivered, c.says),
				p.stop())
			all := string(bytes.Join(p.stored(), []byte("\n")))
			for _, text := range c.stored {
				assert.Contains(t, all, text)
			}
		})
	}
}

func fromHex(t *testing.T, text string) string {
	t.Helper()
	p, err := hex.DecodeString(text)
	require.NoError(t, err)
	return string(p)
}

// Only lines can be told apart again: what is wrong behind a count ends the connection.
func TestAStreamThatCannotBeUnderstoodIsClosed(t *testing.T) {
	p := startIngest(t)
	for _, in := range []string{"GET / HTTP/1.1\n\n", "3 <6>\tat A\n<6>Sep  1 00:00:00 box a: b\n"} {
		send(t, p.at["syslog"], []byte(in))
	}
	r := p.until("both are closed", func(r report) bool { return r.Failed == 2 && r.Open == 0 })
	assert.EqualValues(t, 1, r.Queued)
	p.stop()
}

// SIGHUP begins new files and ends nothing, in the middle of a load.
func TestHangupReopensFiles(t *testing.T) {
	const frames, hangups = 20_000, 3
	p := startIngest(t, "-sink-rate", "4MB", "-store", "16KiB")
	wait := run(t.Context(), []*load.Client{{
		Address: p.at["syslog"], Format: load.SyslogLine, Number: 3,
		Frames: frames,
	}})
	for i := range hangups {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		p.until("a new file is begun", func(report) bool {
			names, err := sink.Files(p.dir)
			require.NoError(t, err)
			return len(names) == i+2
		})
	}
	require.NoError(t, wait())
	p.until("all have come", func(r report) bool { return r.Delivered == frames })
	assert.Equal(t, fmt.Sprintf("delivered %d of %d, dropped 0, lost 0", frames, frames), p.stop())
	tally := p.tally(nil)
	assert.Equal(t, frames, tally.Count(3))
	assert.Zero(t, tally.Twice)
}

// A process that is killed leaves whole lines for the next one, and its folder.
func TestAfterAKillTheNextOneGoesOn(t *testing.T) {
	p := startIngest(t)
	go func() {
		_ = run(t.Context(), []*load.Client{{Address: p.at["syslog"], Format: load.SyslogLine, Number: 1}})()
	}()
	p.until("some have come", func(r report) bool { return r.Delivered > 10_000 })
	second, err := newServerIn(t, p.dir)
	require.ErrorIs(t, err, sink.ErrLocked)
	require.Nil(t, second)
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	names, err := sink.Files(p.dir)
	require.NoError(t, err)
	last, err := os.OpenFile(names[len(names)-1], os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = last.WriteString(`{"at":"torn`) // whether the kill has torn a line or not
	require.NoError(t, err)
	require.NoError(t, last.Close())
	next := startIngest(t, "-sink", p.dir)
	next.dir = p.dir
	require.NoError(t, run(t.Context(),
		[]*load.Client{{Address: next.at["syslog"], Format: load.SyslogLine, Number: 2, Frames: 100}})())
	next.until("all have come", func(r report) bool { return r.Delivered == 100 })
	next.stop()
	assert.Equal(t, 100, next.tally(nil).Count(2)) // fails at a torn line
	assert.Contains(t, next.errs.String(), "a torn line was set aside")
}

func newServerIn(t *testing.T, dir string) (*server, error) {
	t.Helper()
	cfg, err := parseConfig([]string{"-sink", dir, "-syslog", "127.0.0.1:0", "-graphite=", "-statsd=", "-json="},
		io.Discard)
	require.NoError(t, err)
	return newServer(cfg, quietLogger())
}

func TestASinkThatIsNoDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	fifo, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "file")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, where := range []string{fifo, file, "/dev/full"} {
		_, err := newServerIn(t, where)
		assert.ErrorIs(t, err, syscall.ENOTDIR, where)
	}
}

// Two formats on one port of two addresses stay two formats.
func TestListenersAreToldApartByTheirAddresses(t *testing.T) {
	port := freePort(t)
	p := startIngest(t, "-syslog", fmt.Sprintf("127.0.0.1:%d", port), "-graphite", fmt.Sprintf("127.0.0.2:%d", port))
	send(t, p.at["syslog"], []byte("<13>1 - - - - - -\n"))
	send(t, p.at["graphite"], []byte("a 1 2\n"))
	p.until("both have come", func(r report) bool { return r.Delivered == 2 })
	assert.Equal(t, "delivered 2 of 2, dropped 0, lost 0", p.stop())
	all := byAddress{}
	for _, at := range []string{"127.0.0.1:1", "127.0.0.2:1", "0.0.0.0:2", "[::]:2", "[::]:3", "[::1]:3"} {
		all[netip.MustParseAddrPort(at)] = &listener{address: at}
	}
	for local, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1:1", "127.0.0.2:1": "127.0.0.2:1", "127.0.0.3:1": "", "127.0.0.1:2": "0.0.0.0:2",
		"[::1]:2": "[::]:2", "[::1]:3": "[::1]:3", "[fe80::1%lo]:3": "[::]:3", "127.0.0.1:3": "[::]:3",
		"[::ffff:127.0.0.1]:1": "127.0.0.1:1",
	} {
		got := all.find(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local)))
		if want == "" {
			assert.Nil(t, got, local)
		} else if assert.NotNil(t, got, local) {
			assert.Equal(t, want, got.address, local)
		}
	}
	assert.Nil(t, all.find(nil))
}

func TestTheLogOfAServerIsBounded(t *testing.T) {
	s, err := newServerIn(t, t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close(t.Context(), patience)) }()
	for _, l := range s.listeners {
		assert.IsType(t, &logLimit{}, l.logger.Handler())
	}
	assert.IsType(t, &logLimit{}, s.weir.Logger.Handler())
}
