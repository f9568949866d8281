//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/examples/ingest/internal/load"
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
