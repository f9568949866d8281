package logging_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/logging"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// recorder returns a logger at level and what it has written since the last call, without time and channel number.
func recorder(level slog.Leveler) (*slog.Logger, func() []string) {
	var out bytes.Buffer
	replace := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "channel" {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: replace}))
	return log, func() (lines []string) {
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			lines = append(lines, strings.Replace(line, " local=192.0.2.1:80 remote=192.0.2.2:50000", " …", 1))
		}
		out.Reset()
		return lines
	}
}

func handler(t testing.TB, cfg logging.Config) *logging.Handler {
	h, err := logging.New(cfg)
	require.NoError(t, err)
	return h
}

// echo writes back what it reads, and fails at "fail".
type echo struct{}

var errTest = errors.New("test")

func (echo) ChannelRead(ctx *pipeline.Context, msg any) error {
	if string(msg.(*buffer.Buf).Bytes()) == "fail" {
		return errTest
	}
	ctx.FireEvent(&struct{}{})
	return ctx.Write(msg)
}

func TestTheLifeOfAChannel(t *testing.T) {
	log, lines := recorder(slog.LevelInfo)
	ch := pipelinetest.New(t, handler(t, logging.Config{Logger: log, Name: "socket"}), echo{})
	assert.Equal(t, []string{"level=INFO msg=active at=socket …"}, lines())
	ch.WriteInbound("hello")
	assert.Equal(t, []string{
		"level=INFO msg=read at=socket … bytes=5", "level=INFO msg=write at=socket … bytes=5",
		`level=INFO msg="read complete" at=socket …`, "level=INFO msg=flush at=socket … pendingBytes=4096",
	}, lines())
	ch.Stall()
	ch.Do(func() { assert.NoError(t, ch.Pipeline().Write(strings.Repeat("x", 100<<10))) })
	assert.Contains(t, strings.Join(lines(), "\n"),
		`msg="writability changed" at=socket … writable=false pendingBytes=131072`)
	ch.Unstall()
	assert.Contains(t, strings.Join(lines(), "\n"),
		`msg="writability changed" at=socket … writable=true pendingBytes=0`)
	ch.PeerClose()
	text := strings.Join(lines(), "\n")
	assert.Contains(t, text, `msg="read closed" at=socket …`)
	assert.Contains(t, text, "msg=close at=socket …")
	assert.True(t, strings.HasSuffix(text, "msg=inactive at=socket …"), text)
}

func TestErrorsEventsAndShutdownPass(t *testing.T) {
	log, lines := recorder(slog.LevelInfo)
	ch := pipelinetest.New(t, echo{}, handler(t, logging.Config{Logger: log}))
	lines()
	ch.WriteInbound("x")
	assert.Contains(t, lines()[0], `msg=event … type="*struct {}"`)
	assert.Len(t, ch.Events(), 1, "it goes on")
	ch.WriteInbound("fail")
	assert.ErrorIs(t, ch.TakeError(), errTest, "it goes on")
	text := strings.Join(lines(), "\n")
	assert.Contains(t, text, "msg=error … error=test")
	assert.Contains(t, text, "msg=inactive … cause=")

	ch = pipelinetest.New(t, handler(t, logging.Config{Logger: log}))
	ch.Shutdown()
	assert.True(t, ch.Closed(), "it goes on")
	assert.Contains(t, strings.Join(lines(), "\n"), "msg=shutdown …")
}

func TestTheChannelsLoggerIsTheDefault(t *testing.T) {
	log, lines := recorder(slog.LevelInfo)
	pipelinetest.NewConfig(t, pipelinetest.Config{Logger: log}, handler(t, logging.Config{}))
	assert.Contains(t, lines(), "level=INFO msg=active …")
}

func TestDumpsAreBounded(t *testing.T) {
	log, lines := recorder(slog.LevelInfo)
	ch := pipelinetest.New(t, handler(t, logging.Config{Logger: log, DumpBytes: 4}))
	for n, want := range map[int]string{3: "61 61 61 ", 4: "61 61 61 61 ", 5: "61 61 61 61 ", 5000: "61 61 61 61 "} {
		lines()
		ch.WriteInbound(strings.Repeat("a", n))
		read := lines()[0]
		assert.Contains(t, read, "00000000  "+want+" ")
		assert.NotContains(t, read, want+"61")
		assert.Less(t, len(read), 200)
		lines()
		ch.Do(func() { assert.NoError(t, ch.Pipeline().Write(strings.Repeat("a", n))) })
		assert.Contains(t, lines()[0], "00000000  "+want+" ")
		ch.Inbound()
	}
}

func TestTheLevelMayChangeAtAnyTime(t *testing.T) {
	var level slog.LevelVar
	log, lines := recorder(&level)
	ch := pipelinetest.New(t, handler(t, logging.Config{Logger: log, Level: slog.LevelDebug}), echo{})
	ch.WriteInbound("x")
	assert.Empty(t, lines())
	level.Set(slog.LevelDebug)
	ch.WriteInbound("x")
	assert.Equal(t, "level=DEBUG msg=read … bytes=1", lines()[0])
	level.Set(slog.LevelInfo)
	ch.WriteInbound("x")
	assert.Empty(t, lines())
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	for n, ok := range map[int]bool{-1: false, logging.MaxDumpBytes: true, logging.MaxDumpBytes + 1: false} {
		_, err := logging.New(logging.Config{DumpBytes: n})
		assert.Equal(t, ok, err == nil, n)
		assert.True(t, ok || errors.Is(err, logging.ErrConfig))
	}
}

func TestOffItDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds write down who holds buffers")
	}
	log, _ := recorder(slog.LevelInfo)
	h := handler(t, logging.Config{Logger: log, Level: slog.LevelDebug, DumpBytes: 100})
	ch := pipelinetest.New(t, pipelinetest.Named("log", h), pipelinetest.Named("sink", sink{}))
	ctx, b, event := ch.Context("log"), buffer.New(10), &struct{ n int }{}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_ = h.ChannelRead(ctx, b)
		_ = h.ChannelReadComplete(ctx)
		_ = h.ChannelEvent(ctx, event)
		_ = h.ErrorCaught(ctx, errTest)
		_ = h.Flush(ctx)
	}))
	b.Release()
}

// sink ends what would be recorded.
type sink struct{}

func (sink) ChannelRead(*pipeline.Context, any) error  { return nil }
func (sink) ChannelEvent(*pipeline.Context, any) error { return nil }
