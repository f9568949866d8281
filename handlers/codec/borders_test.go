package codec

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// borderWays are the ways to write a message from a handler's Context.
var borderWays = map[string]func(ctx *pipeline.Context, p []byte) error{
	"Buf": func(ctx *pipeline.Context, p []byte) error {
		b := ctx.Pool().Get(len(p))
		defer b.Release()
		b.Append(p)
		return ctx.Write(b)
	},
	"[]byte":     func(ctx *pipeline.Context, p []byte) error { return ctx.Write(p) },
	"string":     func(ctx *pipeline.Context, p []byte) error { return ctx.Write(string(p)) },
	"WriteBytes": func(ctx *pipeline.Context, p []byte) error { return ctx.WriteBytes(p[:len(p)/2], nil, p[len(p)/2:]) },
	"Out": func(ctx *pipeline.Context, p []byte) error {
		ctx.Out().Append(p[:len(p)/3])
		ctx.Out().Append(p[len(p)/3:])
		return ctx.EndMessage()
	},
	"TryWrite": func(ctx *pipeline.Context, p []byte) error { return ctx.Ref().TryWrite(p) },
	"Ref.Write": func(ctx *pipeline.Context, p []byte) error {
		return ctx.Ref().Write(context.Background(), p)
	},
}

// borderSizes are around what is copied, what a block holds, and what the tail block is asked for.
var borderSizes = []int{1, 2, 1023, 1024, 1025, 4096, 64<<10 - 1, 64 << 10, 64<<10 + 1, 300_000, 1}

func borderMessage(i, n int) []byte {
	p := make([]byte, n)
	for k := range p {
		p[k] = byte(k*7 + i)
	}
	return p
}

// wantFrames checks that wire is these messages, each with depth lengths before it.
func wantFrames(t *testing.T, wire []byte, depth int, messages [][]byte) {
	t.Helper()
	for i, want := range messages {
		for d := range depth {
			require.GreaterOrEqual(t, len(wire), 4, "message %d", i)
			n := int(binary.BigEndian.Uint32(wire))
			wire = wire[4:]
			require.Equal(t, len(want)+4*(depth-1-d), n, "message %d", i)
		}
		require.GreaterOrEqual(t, len(wire), len(want), "message %d", i)
		require.True(t, string(want) == string(wire[:len(want)]), "message %d", i)
		wire = wire[len(want):]
	}
	assert.Empty(t, wire)
}

func borderPrepender(t testing.TB) *Prepender {
	p, err := NewLengthFieldPrepender(LengthFieldPrependerConfig{Width: 4})
	require.NoError(t, err)
	return p
}

// passing is a WriteHandler that changes nothing.
type passing struct{}

func (passing) Write(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

// borderChains are what may stand before the one who writes, and how many lengths each message then has.
var borderChains = map[string]struct {
	handlers func(t testing.TB) []any
	depth    int
}{
	"one":     {func(t testing.TB) []any { return []any{borderPrepender(t)} }, 1},
	"two":     {func(t testing.TB) []any { return []any{borderPrepender(t), borderPrepender(t)} }, 2},
	"passing": {func(t testing.TB) []any { return []any{passing{}, borderPrepender(t), passing{}} }, 1},
}

// A message is a message on every way out: whoever frames gets each for itself.
func TestEveryWayToWriteKeepsTheBordersOfMessages(t *testing.T) {
	for chain, before := range borderChains {
		for way, write := range borderWays {
			for _, when := range []string{"one turn", "across turns", "before active", "while active is told", "stalled"} {
				t.Run(fmt.Sprintf("%s/%s/%s", chain, way, when), func(t *testing.T) {
					var messages [][]byte
					writeAll := func(ctx *pipeline.Context) {
						for i, n := range borderSizes {
							messages = append(messages, borderMessage(i, n))
							assert.NoError(t, write(ctx, messages[i]))
						}
					}
					app := &borderWriter{}
					switch when {
					case "before active":
						app.added = writeAll
					case "while active is told":
						app.active = writeAll
					}
					ch := pipelinetest.NewConfig(t, pipelinetest.Config{Stalled: when == "stalled"},
						append(before.handlers(t), pipelinetest.Named("app", app))...)
					ctx := ch.Context("app")
					switch when {
					case "one turn", "stalled":
						ch.Do(func() { writeAll(ctx) })
					case "across turns":
						for i, n := range borderSizes {
							messages = append(messages, borderMessage(i, n))
							ch.Do(func() { assert.NoError(t, write(ctx, messages[i])) })
						}
					}
					ch.Unstall()
					wantFrames(t, ch.Outbound(), before.depth, messages)
				})
			}
		}
	}
}

// Around the limit a message is whole or not there: what is refused leaves no header and no part behind, and what was
// taken before is framed as ever. A Context's newest message may exceed the limit, a posted one may not.
func TestMessagesAroundTheLimitAreWholeOrRefused(t *testing.T) {
	const limit = 128 << 10
	for way, write := range borderWays {
		posts := way == "TryWrite" || way == "Ref.Write"
		for _, n := range []int{limit - 1, limit, limit + 1, 3 * limit} {
			t.Run(fmt.Sprintf("%s/%d", way, n), func(t *testing.T) {
				ch := pipelinetest.NewConfig(t, pipelinetest.Config{MaxPendingBytes: limit},
					borderPrepender(t), pipelinetest.Named("app", &borderWriter{}))
				messages := [][]byte{borderMessage(0, n), borderMessage(1, 5)}
				ch.Do(func() {
					err := write(ch.Context("app"), messages[0])
					if posts && n > limit {
						assert.ErrorIs(t, err, pipeline.ErrFull)
						messages = messages[1:]
						return
					}
					assert.NoError(t, err)
				})
				ch.Do(func() { assert.NoError(t, write(ch.Context("app"), messages[len(messages)-1])) })
				wantFrames(t, ch.Outbound(), 1, messages)
			})
		}
	}
}

// borderWriter writes when it is added, or when the channel is active.
type borderWriter struct{ added, active func(*pipeline.Context) }

func (b *borderWriter) HandlerAdded(ctx *pipeline.Context) error {
	if b.added != nil {
		b.added(ctx)
	}
	return nil
}

func (b *borderWriter) ChannelActive(ctx *pipeline.Context) error {
	if b.active != nil {
		b.active(ctx)
	}
	return nil
}

// Different ways in one turn, some of them open until the next: each is a message, in the order of the calls; what was
// posted comes in a later turn.
func TestMixedWaysKeepTheBordersOfMessages(t *testing.T) {
	for chain, before := range borderChains {
		t.Run(chain, func(t *testing.T) {
			ch := pipelinetest.New(t, append(before.handlers(t), pipelinetest.Named("app", &borderWriter{}))...)
			ctx := ch.Context("app")
			var messages, posted [][]byte
			ch.Do(func() {
				for round := range 3 {
					for _, way := range []string{"WriteBytes", "Out", "TryWrite", "Buf", "open", "string", "TryWrite", "open"} {
						p := borderMessage(len(messages)+len(posted), 10+round)
						switch way {
						case "open":
							ctx.Out().Append(p)
							messages = append(messages, p)
							if round == 1 {
								assert.NoError(t, ctx.Flush())
							}
							continue
						case "TryWrite":
							posted = append(posted, p)
						default:
							messages = append(messages, p)
						}
						assert.NoError(t, borderWays[way](ctx, p))
						if way == "Buf" && round == 2 {
							ctx.Flushed(func(error) {})
						}
					}
					assert.NoError(t, ctx.EndMessage())
				}
			})
			wantFrames(t, ch.Outbound(), before.depth, append(messages, posted...))
		})
	}
}

func TestResultsOfAPoolKeepTheBordersOfMessages(t *testing.T) {
	for chain, before := range borderChains {
		t.Run(chain, func(t *testing.T) {
			pool, err := offload.NewPool(offload.PoolConfig{Workers: 4})
			require.NoError(t, err)
			defer func() { assert.NoError(t, pool.Close(context.Background())) }()
			work := func(_ context.Context, frame []byte) ([]byte, error) { return append([]byte{'>'}, frame...), nil }
			h, err := offload.Bytes(pool, work, func(ctx *pipeline.Context, r []byte, err error) error {
				if err != nil {
					return err
				}
				return ctx.WriteBytes(r[:1], r[1:])
			})
			require.NoError(t, err)
			ch := pipelinetest.New(t, append(before.handlers(t), h)...)
			var messages [][]byte
			for i := range 50 {
				p := fmt.Append(nil, "message ", i)
				messages = append(messages, append([]byte{'>'}, p...))
				ch.WriteInbound(p)
			}
			ch.PeerClose()
			ch.RunUntil(ch.Closed)
			wantFrames(t, ch.Outbound(), before.depth, messages)
		})
	}
}
