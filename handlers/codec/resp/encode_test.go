package resp

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestAppendFunctionsWriteWhatTheirNamesSay(t *testing.T) {
	b := buffer.New(0)
	require.NoError(t, AppendSimple(b, "OK"))
	require.NoError(t, AppendError(b, "ERR no"))
	AppendInt(b, 0)
	AppendInt(b, math.MinInt64)
	AppendInt(b, math.MaxInt64)
	AppendBulk(b, []byte("a\r\nb"))
	AppendBulkString(b, "")
	AppendBulkInt(b, -12)
	AppendNull(b)
	AppendNullArray(b)
	AppendArrayHeader(b, 10)
	AppendCommand(b, []byte("GET"), []byte("k"))
	assert.Equal(t, "+OK\r\n-ERR no\r\n:0\r\n:-9223372036854775808\r\n:9223372036854775807\r\n"+
		"$4\r\na\r\nb\r\n$0\r\n\r\n"+
		"$3\r\n-12\r\n$-1\r\n*-1\r\n*10\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", string(b.Bytes()))
}

func TestWhatCannotBeEncodedLeavesNothing(t *testing.T) {
	b := buffer.New(0)
	for _, text := range []string{"a\r\n+b", "\n", "a\r"} {
		assert.ErrorIs(t, AppendSimple(b, text), ErrEncode)
		assert.ErrorIs(t, AppendError(b, text), ErrEncode)
	}
	for _, v := range []Value{
		array(bulk("fine"), array(simple("a\nb"))), errorValue("\r"), inline("a\n"),
		{Kind: 99},
		inline("+OK"), inline("*1"), inline("$1"), inline(":1"), inline("-1"),
	} {
		assert.ErrorIs(t, AppendValue(b, &v), ErrEncode)
	}
	assert.Zero(t, b.Len())
}

func TestAppendingAllocatesNothing(t *testing.T) {
	b := buffer.New(4096)
	v := array(bulk("abc"), integer(-7), null(), simple("OK"))
	text := []byte("some bytes")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		b.Truncate(0)
		_ = AppendSimple(b, "OK")
		_ = AppendError(b, "ERR")
		AppendInt(b, -1234567)
		AppendBulk(b, text)
		AppendBulkInt(b, 1234567)
		_ = AppendValue(b, &v)
	}))
}

func TestValueEncoderWritesValuesAndPassesTheRest(t *testing.T) {
	ch := pipelinetest.New(t, ValueEncoder{}, pipelinetest.Named("app", &collector{}))
	app := ch.Context("app")
	ch.Do(func() {
		v := array(bulk("abc"), integer(1))
		assert.NoError(t, app.Write(&v))
		assert.NoError(t, app.Write(&Command{Args: [][]byte{[]byte("PING")}}))
		assert.NoError(t, app.Write("raw"))
		bad := simple("a\nb")
		assert.ErrorIs(t, app.Write(&bad), ErrEncode)
	})
	assert.Equal(t, "*2\r\n$3\r\nabc\r\n:1\r\n*1\r\n$4\r\nPING\r\nraw", ch.OutboundString())
	ch.Close()
	ch.Do(func() {
		v := integer(1)
		assert.ErrorIs(t, app.Write(&v), pipeline.ErrClosed)
	})
}

func TestLargeValuesAreWrittenWhole(t *testing.T) {
	ch := pipelinetest.New(t, ValueEncoder{}, pipelinetest.Named("app", &collector{}))
	text := strings.Repeat("x", 300_000)
	ch.Do(func() {
		v := bulk(text)
		assert.NoError(t, ch.Context("app").Write(&v))
	})
	assert.Equal(t, "$300000\r\n"+text+"\r\n", ch.OutboundString())
}
