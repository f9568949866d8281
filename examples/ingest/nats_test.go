//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/examples/ingest/internal/load"
	"github.com/weirnet/weir/examples/ingest/internal/sink"
)

// A NATS server that is killed, stays away and comes back: that is pressure meanwhile, and nothing is lost.
func TestNATS(t *testing.T) {
	const connections, frames = 3, 30_000
	dir, port := t.TempDir(), freePort(t)
	startNATS := func() *process {
		p := start(t, "nats", fmt.Sprint(port), dir)
		require.Equal(t, "ready", p.line())
		return p
	}
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	broker := startNATS()
	p := startIngest(t, "-sink", url, "-high", "1MiB", "-nats-message", "4KiB")
	var clients []*load.Client
	for i := range connections {
		clients = append(clients, &load.Client{
			Address: p.at["syslog"], Format: load.SyslogCounted, Number: uint64(i), Frames: frames, FramesPerSecond: 20_000,
			PaddingBytes: 50,
		})
	}
	wait := run(context.Background(), clients)
	p.until("some have come", func(r report) bool { return r.Delivered > connections*frames/10 })
	require.NoError(t, broker.cmd.Process.Kill())
	r := p.until("a dead server is pressure, and said", func(r report) bool {
		return r.Level == "HIGH" && r.Paused == connections && r.SinkError != ""
	})
	assert.Less(t, r.Pending, int64(3<<20))
	_ = broker.cmd.Wait()
	broker = startNATS()
	p.until("it goes on", func(now report) bool { return now.Delivered > r.Delivered })
	require.NoError(t, broker.cmd.Process.Kill()) // once more, in the middle
	_ = broker.cmd.Wait()
	startNATS()
	require.NoError(t, wait())
	p.until("all have come", func(r report) bool { return r.Delivered == connections*frames })
	p.stop()
	tally := readStream(t, url)
	for _, c := range clients {
		assert.Equal(t, frames, tally.Count(c.Number))
		assert.Empty(t, tally.Missing(c.Number, frames))
	}
	assert.Zero(t, tally.Twice, "the stream drops what it has already")
}

// A server that comes later than we do is waited for.
func TestNATSMayComeLater(t *testing.T) {
	port := freePort(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	p := startIngest(t, "-sink", url, "-nats-message", "1")
	require.NoError(t, run(context.Background(),
		[]*load.Client{{Address: p.at["json"], Format: load.JSON, Frames: 100}})())
	p.until("it waits", func(r report) bool { return r.Queued == 100 && r.Delivered == 0 && r.SinkError != "" })
	broker := start(t, "nats", fmt.Sprint(port), t.TempDir())
	require.Equal(t, "ready", broker.line())
	p.until("all have come", func(r report) bool { return r.Delivered == 100 })
	p.stop()
	assert.Equal(t, 100, readStream(t, url).Count(0))
}

// A record that the server will never take stops nobody: it is set aside, counted and said. The others of its message
// are delivered.
func TestNATSRejectsWhatIsTooLong(t *testing.T) {
	const around = 100
	for _, policy := range []string{"set aside", "drop"} {
		t.Run(policy, func(t *testing.T) {
			aside := t.TempDir()
			port, dir := freePort(t), policy
			if dir != "drop" {
				dir = aside
			}
			url := fmt.Sprintf("nats://127.0.0.1:%d", port)
			broker := start(t, "nats", fmt.Sprint(port), t.TempDir())
			require.Equal(t, "ready", broker.line())
			p := startIngest(t, "-sink", url, "-frame", "2MiB", "-nats-message", "8MiB", "-rejected", dir)
			metrics := func(connection uint64) (all []byte) {
				for i := range uint64(around) {
					all = load.Graphite(all, load.AppendMark(nil, connection, i, ""))
				}
				return all
			}
			send(t, p.at["graphite"], metrics(1))
			send(t, p.at["syslog"], load.SyslogCounted(nil, load.AppendMark(nil, 2, 0, strings.Repeat("x", 1_100_000))))
			send(t, p.at["graphite"], metrics(3))
			p.until("all others have come", func(r report) bool { return r.Delivered == 2*around && r.Rejected == 1 })
			assert.Equal(t, "delivered 200 of 201, dropped 0, lost 0, 1 rejected", p.stop())
			assert.Contains(t, p.errs.String(), "the sink rejects long records")
			assert.Contains(t, p.errs.String(), "sink rejects records for good")
			tally := readStream(t, url)
			assert.Equal(t, around, tally.Count(1))
			assert.Equal(t, around, tally.Count(3))
			p.dir = aside
			if policy == "drop" {
				assert.Empty(t, p.stored())
			} else {
				assert.Equal(t, 1, p.tally(nil).Count(2))
			}
		})
	}
}

// A stream may take less than the server: what was put together for the server is divided.
func TestNATSDividesWhatIsTooLongForTheStream(t *testing.T) {
	const frames = 2000
	port := freePort(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	broker := start(t, "nats", fmt.Sprint(port), t.TempDir())
	require.Equal(t, "ready", broker.line())
	conn, err := nats.Connect(url)
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	cfg := jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.*"}}
	_, err = js.CreateStream(t.Context(), cfg)
	require.NoError(t, err)
	p := startIngest(t, "-sink", url, "-rejected", "drop")
	p.command("rate %d", sink.Standstill) // what it knows of the stream is old by the time that it stores
	cfg.MaxMsgSize = 1000
	_, err = js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), []*load.Client{{Address: p.at["json"], Format: load.JSON, Frames: frames}})())
	send(t, p.at["graphite"], []byte(strings.Repeat("x", 2000)+" 1 2\n"))
	p.until("all is read", func(r report) bool { return r.Queued == frames+1 })
	p.command("rate 0")
	p.until("all have come", func(r report) bool { return r.Delivered == frames && r.Rejected == 1 })
	p.stop()
	tally := readStream(t, url)
	assert.Equal(t, frames, tally.Count(0))
	assert.Zero(t, tally.Twice)
}

// What cannot work with NATS is refused at the start, what can pass is said then.
func TestNATSIsLookedAtAtTheStart(t *testing.T) {
	for _, args := range [][]string{
		{"-nats-subject", "a b"},
		{"-nats-subject", "a.*"},
		{"-nats-subject", "a.>"},
		{"-nats-subject", "a..b"},
		{"-nats-subject", ".a"},
		{"-nats-stream", "a.b"},
		{"-nats-stream", "a b"},
		{"-nats-stream", "a*"},
	} {
		cfg, err := parseConfig(append([]string{"-sink", "nats://127.0.0.1:1"}, args...), io.Discard)
		require.NoError(t, err)
		_, err = newServer(cfg, quietLogger())
		require.ErrorIs(t, err, sink.ErrConfig, "%v", args)
		assert.ErrorContains(t, err, args[1])
	}
	p := startIngest(t, "-sink", fmt.Sprintf("nats://127.0.0.1:%d", freePort(t)))
	p.stop()
	assert.Contains(t, p.errs.String(), "the sink cannot be used yet")
	assert.Contains(t, p.errs.String(), nats.ErrDisconnected.Error())
}

// readStream reads all that the stream has.
func readStream(t *testing.T, url string) *load.Tally {
	t.Helper()
	conn, err := nats.Connect(url)
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := js.Stream(ctx, "INGEST")
	require.NoError(t, err)
	info, err := stream.Info(ctx)
	require.NoError(t, err)
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	tally := &load.Tally{}
	for range info.State.Msgs {
		message, err := consumer.Next(jetstream.FetchMaxWait(patience))
		require.NoError(t, err)
		for line := range bytes.Lines(message.Data()) {
			require.NoError(t, tally.Add(bytes.TrimSuffix(line, []byte("\n")), nil))
		}
	}
	return tally
}

// freePort returns a port that nobody listens on at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
