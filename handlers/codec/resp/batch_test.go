package resp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// batcher takes the requests of each batch and does what the test says after each; false: it stops asking.
type batcher struct {
	collector
	batches int
	more    func(ctx *pipeline.Context, text string) bool
}

func (b *batcher) ChannelRead(ctx *pipeline.Context, msg any) error {
	batch, ok := msg.(*CommandBatch)
	if !ok {
		return b.collector.ChannelRead(ctx, msg)
	}
	b.batches++
	for c := batch.Next(); c != nil; c = batch.Next() {
		text := strings.Join(texts(c.Args), " ")
		b.got = append(b.got, text)
		if b.more != nil && !b.more(ctx, text) {
			return nil
		}
	}
	return nil
}

func batchChannel(t testing.TB, cfg Config) (*pipelinetest.Channel, *batcher, *CommandBatchDecoder) {
	d, err := NewCommandBatchDecoder(cfg)
	require.NoError(t, err)
	b := &batcher{}
	return pipelinetest.New(t, pipelinetest.Named("resp", d), pipelinetest.Named("app", b)), b, d
}

var splits = []int{1, 2, 3, 7, 20, 45, 100, 513, 4096, 1 << 20}

func TestBatchesHoldTheSameCommandsForAnySplit(t *testing.T) {
	in := wire("SET", "k", strings.Repeat("v", 1500)) + "*0\r\n\r\n" + "PING 'a b'\r\n" +
		strings.Repeat(wire("GET", "key"), 50) +
		wire("MSET", "a", "1", "b", "") +
		wire("SET", "x", strings.Repeat("w", 99)) + wire("SET", "y", strings.Repeat("w", 100))
	one, c, _ := commandChannel(t, Config{})
	one.WriteInbound(in)
	for _, size := range splits {
		ch, b, _ := batchChannel(t, Config{})
		ch.WriteInboundSplit([]byte(in), size)
		assert.Equal(t, c.got, b.got, "pieces of %d bytes", size)
		if size == 1<<20 {
			assert.Equal(t, 1, b.batches)
		}
		ch.Finish()
	}
}

func TestABatchThatIsNotAskedForTheRestGoesOnAfterwards(t *testing.T) {
	in := wire("GET", "a") + wire("GET", "b") + wire("GET", "c") + wire("GET", "d") + wire("GET", "e")
	want := []string{"GET a", "GET b", "GET c", "GET d", "GET e"}
	for _, size := range splits {
		ch, b, _ := batchChannel(t, Config{})
		b.more = func(*pipeline.Context, string) bool { return false }
		ch.WriteInboundSplit([]byte(in), size)
		assert.Equal(t, want, b.got, "pieces of %d bytes", size)
		assert.Equal(t, 5, b.batches)
		ch.Finish()
	}
	for _, size := range splits {
		ch, b, d := batchChannel(t, Config{})
		app := ch.Context("app")
		b.more = func(ctx *pipeline.Context, text string) bool {
			if text == "GET b" || text == "GET d" {
				ctx.Pause()
				return false
			}
			return true
		}
		ch.WriteInboundSplit([]byte(in), size)
		assert.Equal(t, want[:2], b.take(), "pieces of %d bytes", size)
		ch.Do(app.Resume)
		assert.Equal(t, want[2:4], b.take(), "pieces of %d bytes", size)
		ch.Do(app.Resume)
		assert.Equal(t, want[4:], b.take(), "pieces of %d bytes", size)
		assert.Nil(t, d.rest)
		ch.Finish()
	}
}

func TestAProtocolErrorBehindABatchIsToldOnce(t *testing.T) {
	for _, size := range splits {
		ch, b, _ := batchChannel(t, Config{})
		ch.WriteInboundSplit([]byte(wire("PING")+wire("PING")+"*1\r\n#4\r\n"+wire("PING")), size)
		assert.Equal(t, []string{"PING", "PING"}, b.got)
		require.Len(t, b.errors, 1)
		assert.ErrorIs(t, b.errors[0], ErrProtocol)
		ch.Finish()
	}
}

func TestADecoderRemovedInsideABatchPassesOnTheRest(t *testing.T) {
	ch, b, _ := batchChannel(t, Config{})
	b.more = func(ctx *pipeline.Context, text string) bool {
		if text == "UPGRADE" {
			_, err := ctx.Pipeline().Remove("resp")
			assert.NoError(t, err)
		}
		return true
	}
	ch.WriteInbound(wire("PING") + wire("UPGRADE") + "raw")
	assert.Equal(t, []string{"PING", "UPGRADE", "bytes:raw"}, b.got)
	ch.Finish()
}

func TestABatchOfAClosedChannelHandsOutNothingMore(t *testing.T) {
	ch, b, _ := batchChannel(t, Config{})
	b.more = func(ctx *pipeline.Context, _ string) bool { return ctx.Close() != nil }
	ch.WriteInbound(wire("QUIT") + wire("PING"))
	assert.Equal(t, []string{"QUIT"}, b.got)
	ch.Finish()
}

func TestShortCommandsAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks write down who takes what")
	}
	p, err := NewCommandParser(Config{})
	require.NoError(t, err)
	in := []byte(wire("SET", "key", "value") + wire("GET", "key"))
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		for rest := in; len(rest) > 0; {
			_, n, err := p.Decode(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
	}))
}

// What decodeShort reads and what decode reads are the same, at every limit.
func TestShortCommandsAreReadAsAllOthers(t *testing.T) {
	for _, in := range []string{
		wire("GET", "k"), wire("A", "", "bc"), wire(strings.Repeat("x", 9)), wire(strings.Repeat("x", 10)),
		wire(strings.Repeat("x", 99)), wire(strings.Repeat("x", 100)),
		wire("1", "2", "3", "4", "5", "6", "7", "8", "9"),
		wire("1", "2", "3", "4", "5", "6", "7", "8", "9", "10"),
		"*1\r\n$01\r\nx\r\n", "*1\r\n$1\r\nxy\r", "*1\r\n$-1\r\n", "*1\r\n$1:\r\n", "*01\r\n$1\r\nx\r\n",
		"*1\r\n$\r\nx\r\n", "*2\r\n$1\r\nx\r\n:1\r\n",
		"*1\n$1\r\nx\r\n", "*1\r\n$1\nx\r\n", "*1\r\n$1\r\nx\n\n",
	} {
		for _, cfg := range []Config{
			{},
			{MaxBulkBytes: 9},
			{MaxBulkBytes: 10},
			{MaxElements: 1},
			{MaxElements: 9},
			{MaxMessageBytes: len(in)},
			{MaxMessageBytes: max(len(in)-1, 16)},
		} {
			fast, err := NewCommandParser(cfg)
			if err != nil {
				continue
			}
			slow, _ := NewCommandParser(cfg)
			c, n, err := fast.Decode([]byte(in))
			m, slowErr := slow.decode([]byte(in))
			if slowErr != nil {
				require.Equal(t, slowErr, err, "%q, %+v", in, cfg)
				continue
			}
			require.NoError(t, err, "%q, %+v", in, cfg)
			require.Equal(t, m, n, "%q, %+v", in, cfg)
			require.Equal(t, texts(slow.cmd.Args), texts(c.Args), "%q, %+v", in, cfg)
		}
	}
}
