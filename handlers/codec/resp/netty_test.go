package resp

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
)

// nettyIDs are the cases that Netty's Redis codec is held to (codec-redis, RedisDecoderTest and RedisEncoderTest). Each
// of them runs below or stands in nettyDeviations.
//
//go:embed testdata/netty-ids.txt
var nettyIDs string

// nettyDeviations are the cases that this package treats otherwise, with the reason. There are none.
var nettyDeviations = map[string]string{}

func simple(s string) Value     { return Value{Kind: Simple, Bytes: []byte(s)} }
func errorValue(s string) Value { return Value{Kind: Error, Bytes: []byte(s)} }
func integer(n int64) Value     { return Value{Kind: Integer, Int: n} }
func bulk(s string) Value       { return Value{Kind: Bulk, Bytes: []byte(s)} }
func inline(s string) Value     { return Value{Kind: Inline, Bytes: []byte(s)} }
func array(v ...Value) Value    { return Value{Kind: Array, Elems: append([]Value{}, v...)} }
func null() Value               { return Value{Kind: Null} }

// nettyDecoding is a stream in steps, what comes out of it, and after which step an error comes, counted from 1.
type nettyDecoding struct {
	id      string
	cfg     Config
	steps   []string
	want    []Value
	after   []int // messages after each step, when the case says so
	errorAt int
}

var nettyDecodings = []nettyDecoding{
	{id: "netty-136", steps: []string{"$6\r\nfoobar\r", "\n"}, want: []Value{bulk("foobar")}, after: []int{0, 1}},
	{id: "netty-137", steps: []string{"P", "I", "N", "G", "\r\n"}, errorAt: 1},
	{
		id: "netty-138", cfg: Config{Inline: true},
		steps: []string{"P", "I", "N", "G", "\r\n"}, want: []Value{inline("PING")},
	},
	{
		id: "netty-140", steps: []string{"+", "O", "K", "\r\n+SEC", "OND\r\n"},
		want: []Value{simple("OK"), simple("SECOND")}, after: []int{0, 0, 0, 1, 2},
	},
	{
		id: "netty-141", steps: []string{"-", "ERR sample message", "\r", "\n"},
		want: []Value{errorValue("ERR sample message")}, after: []int{0, 0, 0, 1},
	},
	{
		id: "netty-143", steps: []string{"$", "21", "\r\n", "bulk\nst", "ring\ntest\n1234", "\r\n"},
		want: []Value{bulk("bulk\nstring\ntest\n1234")}, after: []int{0, 0, 0, 0, 0, 1},
	},
	{id: "netty-145", steps: []string{"$", "-1", "\r\n", "$", "-1", "\r\n"}, want: []Value{null(), null()}},
	{
		id: "netty-146", steps: []string{"*3\r\n", ":1234\r\n", "+sim", "ple\r\n-err", "or\r\n"},
		want: []Value{array(integer(1234), simple("simple"), errorValue("error"))}, after: []int{0, 0, 0, 0, 1},
	},
	{
		id: "netty-147", steps: []string{"*2\r\n*3\r\n:1\r\n:2\r\n:3\r\n*2\r\n+Foo\r\n-Bar\r\n"},
		want: []Value{array(array(integer(1), integer(2), integer(3)), array(simple("Foo"), errorValue("Bar")))},
	},
	{id: "netty-148", steps: []string{"$-2\r\n"}, errorAt: 1},
	{id: "netty-149", steps: []string{":12a\r\n"}, errorAt: 1},
	{id: "netty-150", steps: []string{":\r\n"}, errorAt: 1},
	{id: "netty-153", steps: []string{"$3\r\nfooXY"}, errorAt: 1},
	{id: "netty-154", steps: []string{"+OK\n"}, errorAt: 1},
	{id: "netty-155", cfg: Config{MaxDepth: 1024}, steps: []string{strings.Repeat("*1\r\n", 1025) + ":1\r\n"}, errorAt: 1},
	{id: "netty-156", cfg: Config{MaxElements: 1_000_000}, steps: []string{"*2147483647\r\n"}, errorAt: 1},
}

// nettyEncodings are values and their bytes; no bytes: it cannot be encoded.
var nettyEncodings = []struct {
	id    string
	value Value
	wire  string
}{
	{"netty-157", inline("ping"), "ping\r\n"},
	{"netty-158", simple("simple"), "+simple\r\n"},
	{"netty-159", errorValue("error1"), "-error1\r\n"},
	{"netty-160", integer(1234), ":1234\r\n"},
	{"netty-161", bulk("bulk\nstring\ntest"), "$16\r\nbulk\nstring\ntest\r\n"},
	{"netty-164", array(), "*0\r\n"},
	{
		"netty-165", array(simple("foo"), array(bulk("bar"), integer(-1234))),
		"*2\r\n+foo\r\n*2\r\n$3\r\nbar\r\n:-1234\r\n",
	},
	{"netty-166", simple("a\r\n+b"), ""},
}

func TestNettyCasesAllRunOrDeviate(t *testing.T) {
	ran := map[string]bool{}
	for _, c := range nettyDecodings {
		ran[c.id] = true
		t.Run(c.id, c.run)
	}
	for _, c := range nettyEncodings {
		ran[c.id] = true
		t.Run(c.id, func(t *testing.T) {
			b := buffer.New(0)
			b.AppendString("before")
			err := AppendValue(b, &c.value)
			if c.wire == "" {
				assert.ErrorIs(t, err, ErrEncode)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, "before"+c.wire, string(b.Bytes()))
		})
	}
	for _, id := range strings.Fields(nettyIDs) {
		_, deviates := nettyDeviations[id]
		assert.True(t, ran[id] != deviates, "%s must run or stand in nettyDeviations, not both and not neither", id)
		delete(ran, id)
	}
	assert.Empty(t, ran, "cases that testdata/netty-ids.txt does not list")
}

func (c *nettyDecoding) run(t *testing.T) {
	p, err := NewValueParser(c.cfg)
	require.NoError(t, err)
	var rest []byte
	var got []Value
	for i, step := range c.steps {
		rest = append(rest, step...)
		for {
			v, n, err := p.Decode(rest)
			if err == codec.ErrShort {
				break
			}
			if c.errorAt > 0 {
				assert.ErrorIs(t, err, ErrProtocol)
				assert.Equal(t, c.errorAt, i+1, "the step after which the error comes")
				assert.Empty(t, got)
				return
			}
			require.NoError(t, err)
			got = append(got, *v.Clone())
			rest = rest[n:]
		}
		if c.after != nil {
			assert.Len(t, got, c.after[i], "messages after step %d", i+1)
		}
	}
	assert.Zero(t, c.errorAt, "no error came")
	assert.Equal(t, c.want, got)
	assert.Empty(t, rest)
}
