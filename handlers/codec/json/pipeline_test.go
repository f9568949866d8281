package json

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// app records frames and errors, and pauses at each of them when it is told to.
type app struct {
	got    []string
	pauses bool
	paused bool
}

func (a *app) note(ctx *pipeline.Context, text string) {
	if a.paused {
		text = "while reading is paused: " + text
	}
	a.got = append(a.got, text)
	if a.pauses {
		a.paused = true
		ctx.Pause()
	}
}

func (a *app) ChannelRead(ctx *pipeline.Context, msg any) error {
	a.note(ctx, string(msg.(*buffer.Buf).Bytes()))
	return nil
}

func (a *app) ErrorCaught(ctx *pipeline.Context, err error) error {
	a.note(ctx, "error: "+err.Error())
	return nil
}

// outcome feeds in through a pipeline, in pieces whose lengths splits gives, cyclically (0 counts as 1), and returns
// frames and errors in order.
func outcome(t testing.TB, cfg Config, in string, splits []byte, pauses bool) []string {
	f, err := New(cfg)
	require.NoError(t, err)
	a := &app{pauses: pauses}
	ch := pipelinetest.New(t, f, pipelinetest.Named("app", a))
	ctx := ch.Context("app")
	for turn := 0; in != ""; turn++ {
		n := len(in)
		if len(splits) > 0 {
			n = min(n, max(1, int(splits[turn%len(splits)])))
		}
		ch.WriteInbound(in[:n])
		in = in[n:]
	}
	ch.PeerClose()
	for ch.Paused() && !ch.Closed() {
		a.paused = false
		ch.Do(ctx.Resume)
	}
	if !ch.Closed() {
		t.Errorf("open after the end of the stream")
	}
	ch.Finish()
	return a.got
}

const defaultMost = codec.DefaultMaxBytes

func longText(limit int) string {
	return fmt.Sprintf("error: %v", &codec.TooLongError{MaxBytes: limit})
}

func badText(c byte) string { return fmt.Sprintf("error: %v: json: %q", codec.ErrBadFrame, c) }

func truncated(n int) string {
	return fmt.Sprintf("error: %v: after %d bytes of it", codec.ErrTruncated, n)
}

func arrayOpen() string { return fmt.Sprintf("error: %v: an array is open", codec.ErrTruncated) }

// anySplit holds in to want however its bytes arrive, with and without pauses.
func anySplit(t *testing.T, cfg Config, in string, want ...string) {
	t.Helper()
	for n := 1; n <= len(in); n++ {
		for _, pauses := range []bool{false, true} {
			got := outcome(t, cfg, in, []byte{byte(min(n, 255))}, pauses)
			assert.Equal(t, want, got, "%q in pieces of %d, with pauses: %v", in, n, pauses)
		}
	}
}

// The first two are what Netty's JsonObjectDecoder is held to by its own tests.
func TestTextsThroughAPipeline(t *testing.T) {
	john := `{"name":"John"}`
	ch, a := start(t, Config{MaxBytes: 1 << 20})
	for _, piece := range []string{`{"name":"Jo`, `hn"}{"name":"John"}{"name":"Jo`, `hn"}`} {
		ch.WriteInbound(piece)
	}
	assert.Equal(t, []string{john, john, john}, a.got)
	ch.Finish()
	anySplit(t, Config{MaxBytes: 1 << 20}, john+john+john, john, john, john)
	anySplit(t, Config{MaxBytes: 1 << 20}, "  b [1,2,3]", badText('b'))

	anySplit(t, Config{}, " \r\n\t{}\n[]{} ", "{}", "[]", "{}")
	anySplit(t, Config{}, `{"a":"}{[]\"\\"}[{"\\\"":"]"}]`, `{"a":"}{[]\"\\"}`, `[{"\\\"":"]"}]`)
	anySplit(t, Config{}, `{"a":[{}]`, truncated(9))
	anySplit(t, Config{}, `{}"a"`, "{}", badText('"'))
	anySplit(t, Config{}, `{}]`, "{}", badText(']'))
	anySplit(t, Config{}, "{}\xef\xbb\xbf", "{}", badText('\xef'))

	elements := Config{Elements: true}
	anySplit(t, elements, `[ 1 , -2.5e+7,"a\",]" , null,{"b":[1,2]},[] ] {"c":1}[]`,
		"1", "-2.5e+7", `"a\",]"`, "null", `{"b":[1,2]}`, "[]", `{"c":1}`)
	anySplit(t, elements, `[1,2`, "1", truncated(1))
	anySplit(t, elements, `[1,`, "1", arrayOpen())
	anySplit(t, elements, `[1 `, "1", arrayOpen())
	anySplit(t, elements, `[`, arrayOpen())
	anySplit(t, elements, `["a`, truncated(2))
	anySplit(t, elements, `[1 2]`, "1", badText('2'))
	anySplit(t, elements, `[,]`, badText(','))
	anySplit(t, elements, `["a":1]`, `"a"`, badText(':'))
	anySplit(t, elements, `[1}`, "1", badText('}'))
}

func start(t *testing.T, cfg Config) (*pipelinetest.Channel, *app) {
	f, err := New(cfg)
	require.NoError(t, err)
	a := &app{}
	return pipelinetest.New(t, f, a), a
}

func TestATextOfTheMaximumPassesAndOneByteMoreDoesNot(t *testing.T) {
	const most = 12
	x := func(n int) string { return strings.Repeat("x", n) }
	nines := func(n int) string { return strings.Repeat("9", n) }
	for _, c := range []struct {
		name   string
		cfg    Config
		before string
		text   func(n int) string
		after  string
	}{
		{"an object", Config{}, " ", func(n int) string { return `{"a":"` + x(n-8) + `"}` }, ""},
		{"an array", Config{}, "", func(n int) string { return "[" + nines(n-2) + "]" }, ""},
		{"nested", Config{}, "", func(n int) string {
			return strings.Repeat("[", n/2) + nines(n%2) + strings.Repeat("]", n/2)
		}, ""},
		{"with an escape at its end", Config{}, "", func(n int) string { return `["` + x(n-6) + `\""]` }, ""},
		{"an element that is a number", Config{Elements: true}, "[0,", nines, ","},
		{"one with space behind it", Config{Elements: true}, "[0, ", nines, " ,"},
		{"an element that is a string", Config{Elements: true}, "[0,", func(n int) string { return `"` + x(n-2) + `"` }, ","},
		{
			"an element that is an object",
			Config{Elements: true},
			"[0,",
			func(n int) string { return `{"":` + nines(n-5) + `}` }, ",",
		},
	} {
		c.cfg.MaxBytes = most
		for n := most - 1; n <= most+2; n++ {
			in, want := c.before+c.text(n)+c.after, []string{}
			if c.cfg.Elements {
				in, want = in+"true]", append(want, "0")
			} else {
				in += "[true]"
			}
			if n <= most {
				want = append(want, c.text(n))
			} else {
				want = append(want, longText(most))
			}
			if c.cfg.Elements {
				want = append(want, "true")
			} else {
				want = append(want, "[true]")
			}
			require.Len(t, c.text(n), n, c.name)
			anySplit(t, c.cfg, in, want...)
		}
	}
}

func TestATextThatIsTooLongIsReportedOnceAndTakesNoMemory(t *testing.T) {
	for _, c := range []struct {
		elements    bool
		begin, more string
		end         string
		last        []string // at the end of the stream, when the end of the text has not come
	}{
		{false, `{"a":"`, strings.Repeat("}", 1000), `"}`, nil},
		{false, `[[[`, strings.Repeat("[", 1000), strings.Repeat("]", 3+100*1000), nil},
		{true, `["`, strings.Repeat(`\"`, 500), `",`, []string{arrayOpen()}},
		{true, `[1`, strings.Repeat("1", 1000), `,`, []string{arrayOpen()}},
	} {
		for _, whole := range []bool{false, true} {
			ch, a := start(t, Config{MaxBytes: 100, Elements: c.elements})
			ch.WriteInbound(c.begin)
			for range 100 {
				ch.WriteInbound(c.more)
			}
			assert.Equal(t, []string{longText(100)}, a.got)
			want := c.last
			if whole {
				ch.WriteInbound(c.end, "{}")
				want = append([]string{"{}"}, c.last...)
			}
			ch.PeerClose()
			assert.Equal(t, append([]string{longText(100)}, want...), a.got)
			ch.Finish()
		}
	}
}

func TestMaximaThatMakeNoSenseAreRefused(t *testing.T) {
	for n, ok := range map[int]bool{-1: false, 0: true, 1: true, 1 << 30: true, 1<<30 + 1: false} {
		f, err := New(Config{MaxBytes: n})
		assert.Equal(t, ok, err == nil, n)
		if !ok {
			assert.ErrorIs(t, err, codec.ErrConfig)
			assert.Nil(t, f)
		}
	}
	s, err := Split(Config{})
	require.NoError(t, err)
	assert.Equal(t, defaultMost+1, s.(codec.Limiter).MaxMessageBytes())
}
