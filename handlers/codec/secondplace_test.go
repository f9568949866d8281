package codec_test

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/codec/resp"
	"github.com/weirnet/weir/handlers/idle"
	"github.com/weirnet/weir/handlers/logging"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/handlers/proxyproto"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// A handler that remembers its channel is refused a second place, and the first one does not notice: above all, no byte
// of one channel reaches another.
func TestASecondPlaceIsRefusedAndTheFirstGoesOn(t *testing.T) {
	pool, err := offload.NewPool(offload.PoolConfig{Workers: 1})
	require.NoError(t, err)
	defer func() { assert.NoError(t, pool.Close(context.Background())) }()
	must := func(h any, err error) any { require.NoError(t, err); return h }
	upper := func(_ context.Context, p []byte) (string, error) { return string(p), nil }
	reply := func(ctx *pipeline.Context, s string, _ error) error { ctx.FireRead(s); return nil }
	trusted := proxyproto.DecoderConfig{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]struct {
		h          any
		refused    error
		begin, end string // what the first channel receives before and after
		inbound    int    // messages that come of it
	}{
		"framer":    {must(codec.NewLines(codec.LinesConfig{})), codec.ErrReused, "ab", "c\n", 1},
		"prepender": {codec.NewVarint32Prepender(), codec.ErrReused, "ab", "c", 2},
		"resp":      {must(resp.NewValueDecoder(resp.Config{})), codec.ErrReused, "$3\r\nab", "c\r\n", 1},
		"proxy":     {must(proxyproto.NewDecoder(trusted)), proxyproto.ErrReused, "PROXY UNK", "NOWN\r\nabc", 1},
		"logging":   {must(logging.New(logging.Config{Logger: log})), logging.ErrReused, "ab", "c", 2},
		"idle":      {must(idle.New(idle.Config{Reader: time.Second})), idle.ErrConfig, "ab", "c", 2},
		"offload": {
			must(offload.Bytes(pool, upper, reply)),
			offload.ErrConfig, "ab", "c", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := pipelinetest.NewLoop(t)
			first := l.New(c.h)
			second := l.New()
			first.WriteInbound(c.begin)
			second.Do(func() { assert.ErrorIs(t, second.Pipeline().AddLast("again", c.h), c.refused) })
			assert.ErrorIs(t, second.TakeError(), c.refused)
			assert.Empty(t, second.Inbound())
			first.WriteInbound(c.end)
			var got []any
			first.RunUntil(func() bool { got = append(got, first.Inbound()...); return len(got) >= c.inbound })
			assert.Len(t, got, c.inbound)
			first.Advance(2 * time.Second)
			assert.True(t, first.Open())
			if name == "idle" {
				assert.Len(t, first.Events(), 2, "its timer goes on")
			}
		})
	}
}
