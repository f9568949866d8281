//go:build linux

package weir_test

import (
	"errors"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
)

// critic closes its channel for what it reads, without or with a cause.
type critic struct{}

func (critic) ChannelRead(ctx *pipeline.Context, msg any) error {
	if msg.(interface{ Bytes() []byte }).Bytes()[0] == 'q' {
		return ctx.Close()
	}
	return errors.New("bad request")
}

func TestWhyAConnectionEndedIsLoggedWhenItIsAskedFor(t *testing.T) {
	for _, tc := range []struct {
		log                weir.LogClosed
		orderly, forACause int
	}{
		{weir.LogClosedOff, 0, 0}, {weir.LogClosedErrors, 0, 1}, {weir.LogClosedAll, 1, 1},
	} {
		var book logbook
		srv := &weir.Server{LogClosed: tc.log, Logger: book.Logger(), Init: only(func() any { return critic{} })}
		addr := startTCP(t, srv)
		for _, request := range []string{"quit", "nonsense"} {
			c := connect(t, "tcp", addr)
			_, err := io.WriteString(c, request)
			require.NoError(t, err)
			_, _ = io.ReadAll(c)
			c.Close()
		}
		require.NoError(t, srv.Shutdown(background(t)))
		var orderly, forACause int
		for _, line := range book.Lines("weir: connection closed") {
			assert.Regexp(t, `remote=127\.0\.0\.1:\d+ channel=\d+`, line)
			if strings.Contains(line, `cause="`) {
				assert.Contains(t, line, "bad request")
				assert.Contains(t, line, "level=WARN")
				forACause++
			} else {
				assert.Contains(t, line, "level=INFO")
				orderly++
			}
		}
		assert.Equal(t, tc.orderly, orderly, "LogClosed %d", tc.log)
		assert.Equal(t, tc.forACause, forACause, "LogClosed %d", tc.log)
	}
	_, err := (&weir.Server{Init: initEcho, LogClosed: 3}).Listen("tcp", "127.0.0.1:0")
	require.ErrorIs(t, err, weir.ErrConfig)
	require.ErrorContains(t, err, "LogClosed 3")
}

func TestAPeerCannotFillTheLog(t *testing.T) {
	const conns = 1500
	var book logbook
	var closed atomic.Int32
	srv := &weir.Server{
		Loops: 1, LogClosed: weir.LogClosedErrors, Logger: book.Logger(),
		Init:    only(func() any { return critic{} }),
		Channel: channel.Config{Closed: func(*channel.Channel) { closed.Add(1) }},
	}
	addr := startTCP(t, srv)
	require.NoError(t, all(50, func(int) error {
		for range conns / 50 {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return err
			}
			_, _ = io.WriteString(c, "nonsense")
			_, _ = io.ReadAll(c)
			c.Close()
		}
		return nil
	}))
	require.NoError(t, srv.Shutdown(background(t)))
	require.EqualValues(t, conns, closed.Load())
	lines := book.Lines("weir: connection")
	assert.Less(t, len(lines), conns/2) // 100, and 10 for each second that it took
	told := len(book.Lines("weir: connection closed"))
	for _, line := range lines {
		if m := regexp.MustCompile(`omitted=(\d+)`).FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			told += n
		}
	}
	assert.Equal(t, conns, told, "lines, and those that they say were left out")
}
