package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/examples/resp/internal/command"
	"github.com/weirnet/weir/examples/resp/internal/store"
	"github.com/weirnet/weir/handlers/codec/resp"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func newCommands(t testing.TB) *command.Set {
	st, err := store.New(store.Config{Seed: 1})
	require.NoError(t, err)
	commands, err := command.New(st)
	require.NoError(t, err)
	return commands
}

func newChannel(t testing.TB) *pipelinetest.Channel {
	commands := newCommands(t)
	return pipelinetest.NewConfig(t, pipelinetest.Config{
		Init: func(p *pipeline.Pipeline) error { return addHandlers(p, commands) },
	})
}

func request(args ...string) string {
	b := buffer.New(64)
	list := make([][]byte, len(args))
	for i, a := range args {
		list[i] = []byte(a)
	}
	resp.AppendCommand(b, list...)
	return string(b.Bytes())
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	in := request("SET", "k", "v") + "GET k\r\n\r\n*0\r\n" + request("INCR", "n") +
		request("nonsense") + request("LPUSH", "k", "x")
	want := "+OK\r\n$1\r\nv\r\n:1\r\n-ERR unknown command 'nonsense', with args beginning with: \r\n" +
		"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	for _, size := range []int{1, 7, 1 << 20} {
		ch := newChannel(t)
		ch.WriteInboundSplit([]byte(in), size)
		assert.Equal(t, want, ch.OutboundString())
		ch.Finish()
	}
}

func TestQuitIsTheLastRequest(t *testing.T) {
	for _, size := range []int{1, 1 << 20} {
		ch := newChannel(t)
		ch.WriteInboundSplit([]byte(request("QUIT")+request("PING")), size)
		assert.Equal(t, "+OK\r\n", ch.OutboundString())
		assert.True(t, ch.FinSent())
		assert.NoError(t, ch.Cause())
		ch.Finish()
	}
}

func TestABadRequestIsToldAndEndsTheConnection(t *testing.T) {
	ch := newChannel(t)
	ch.WriteInbound(request("PING") + "*1\r\n#4\r\n" + request("PING"))
	assert.Equal(t, "+PONG\r\n-ERR Protocol error: expected '$', got '#'\r\n", ch.OutboundString())
	assert.True(t, ch.FinSent())
	assert.False(t, ch.Open())
}

func TestAPeerThatHasFinishedSendingGetsItsReplies(t *testing.T) {
	ch := newChannel(t)
	ch.WriteInbound(request("PING"))
	ch.PeerClose()
	assert.Equal(t, "+PONG\r\n", ch.OutboundString())
	assert.True(t, ch.Closed())
}

// A client that sends requests and reads no replies: what is held for it stays within the watermark and one block, and
// when it reads again, every request has its reply, in order.
func TestAClientThatDoesNotReadIsNotReadFrom(t *testing.T) {
	const replyBytes, requests = 1000, 2000
	ch := newChannel(t)
	ch.WriteInbound(request("SET", "k", strings.Repeat("x", replyBytes)))
	assert.Equal(t, "+OK\r\n", ch.OutboundString())
	ch.Stall()
	for i := range requests {
		ch.WriteInbound(request("GET", "k") + request("ECHO", fmt.Sprint(i)))
		assert.LessOrEqual(t, ch.Pending(), 128<<10)
	}
	assert.True(t, ch.Paused())
	assert.Positive(t, ch.Stashed(), "the channel holds the rest back")
	var got strings.Builder
	for ch.Drain(10_000) > 0 {
		assert.LessOrEqual(t, ch.Pending(), 128<<10)
		got.Write(ch.Outbound())
	}
	assert.False(t, ch.Paused())
	var want strings.Builder
	for i := range requests {
		fmt.Fprintf(&want, "$%d\r\n%s\r\n$%d\r\n%d\r\n", replyBytes, strings.Repeat("x", replyBytes),
			len(fmt.Sprint(i)), i)
	}
	assert.Equal(t, want.Len(), got.Len())
	assert.True(t, want.String() == got.String())
}

func TestAClientThatNeverReadsIsDisconnected(t *testing.T) {
	ch := newChannel(t)
	ch.Advance(10 * stallTimeout)
	assert.True(t, ch.Open(), "nothing waits for it")
	ch.Stall()
	ch.WriteInbound(request("SET", "k", strings.Repeat("x", 100<<10)) + request("GET", "k"))
	require.True(t, ch.Paused())
	for range 3 { // slow, but it reads
		ch.Advance(stallTimeout - time.Second)
		require.Positive(t, ch.Drain(20<<10))
	}
	assert.True(t, ch.Open())
	ch.Advance(stallTimeout + stallTimeout/4)
	assert.True(t, ch.Closed())
	assert.ErrorIs(t, ch.Cause(), errStalled)
}

func TestABrowsersRequestGetsNoReply(t *testing.T) {
	ch := newChannel(t)
	ch.WriteInbound("PING\r\nPOST / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\n\r\nSET k v\r\n")
	assert.Equal(t, "+PONG\r\n", ch.OutboundString())
	assert.False(t, ch.Open())
}

func TestAClientThatEndsInsideARequestGetsItsReplies(t *testing.T) {
	ch := newChannel(t)
	ch.WriteInbound("PING\r\n*1\r\n$4\r\nPI")
	ch.PeerClose()
	assert.Equal(t, "+PONG\r\n", ch.OutboundString())
	assert.True(t, ch.Closed())
	assert.NoError(t, ch.Cause())
}

func TestOtherErrorsCloseTheConnection(t *testing.T) {
	ch := newChannel(t)
	ch.Do(func() { ch.Context("commands").Pipeline().FireRead("not bytes") })
	assert.Error(t, ch.TakeError())
	assert.True(t, ch.Closed())
}
