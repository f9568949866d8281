package resp

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/codec"
)

// parseValues feeds in to a new parser, growing by chunk bytes at a time.
func parseValues(t testing.TB, cfg Config, in string, chunk int) (got []Value, err error) {
	p, err := NewValueParser(cfg)
	require.NoError(t, err)
	start, all := 0, []byte(in)
	for end := min(chunk, len(in)); ; end = min(end+chunk, len(in)) {
		for {
			v, n, err := p.Decode(all[start:end])
			if err == codec.ErrShort {
				break
			}
			if err != nil {
				return got, err
			}
			require.Positive(t, n)
			start += n
			got = append(got, *v.Clone())
		}
		if end == len(in) {
			return got, nil
		}
	}
}

func TestValuesOfEveryKindAreRead(t *testing.T) {
	in := "+OK\r\n-ERR no\r\n:0\r\n:-9223372036854775808\r\n:+9223372036854775807\r\n:007\r\n$0\r\n\r\n$2\r\n\r\n\r\n" +
		"$-1\r\n*-1\r\n*0\r\n*2\r\n*0\r\n*2\r\n$1\r\na\r\n*1\r\n*-1\r\n+\r\n*1\r\n$-1\r\n"
	want := []Value{
		simple("OK"), errorValue("ERR no"), integer(0), integer(-1 << 63), integer(1<<63 - 1), integer(7), bulk(""),
		bulk("\r\n"), null(),
		{Kind: NullArray},
		array(),
		array(array(), array(bulk("a"), array(Value{Kind: NullArray}))), simple(""), array(null()),
	}
	for _, chunk := range []int{1, 2, 3, 5, len(in)} {
		got, err := parseValues(t, Config{}, in, chunk)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestInlineValuesNeedTheConfigAndTheTopLevel(t *testing.T) {
	got, err := parseValues(t, Config{Inline: true}, "PING a\r\n\r\nb\n+OK\r\n", 1)
	require.NoError(t, err)
	assert.Equal(t, []Value{inline("PING a"), inline(""), inline("b"), simple("OK")}, got)
	_, err = parseValues(t, Config{}, "PING a\r\n", 1)
	assert.ErrorIs(t, err, ErrProtocol)
	_, err = parseValues(t, Config{Inline: true}, "*1\r\nPING\r\n", 1)
	assert.ErrorIs(t, err, ErrProtocol)
}

func TestMalformedValuesAreRefused(t *testing.T) {
	for _, c := range []struct{ in, reason string }{
		{"x", reasonType},
		{"*1\r\nx", reasonType},
		{"+a\n", reasonLineEnd},
		{"+a\rb\r\n", reasonLineEnd},
		{"+\n", reasonLineEnd},
		{":\r\n", reasonInteger},
		{":+\r\n", reasonInteger},
		{":1 \r\n", reasonInteger},
		{":--1\r\n", reasonInteger},
		{":9223372036854775808\r\n", reasonInteger},
		{":-9223372036854775809\r\n", reasonInteger},
		{"$\r\n", reasonBulk},
		{"$-2\r\n", reasonBulk},
		{"$+1\r\n", reasonBulk},
		{"$01\r\n", reasonBulk},
		{"$536870913\r\n", reasonBulk},
		{"$99999999999999999999\r\n", reasonBulk},
		{"$3\r\nfoox", reasonBulkEnd},
		{"$3\r\nfoo\rx", reasonBulkEnd},
		{"*-2\r\n", reasonMultibulk},
		{"*x\r\n", reasonMultibulk},
		{"*1048577\r\n", reasonMultibulk},
		{"*2\r\n*1048574\r\n:1\r\n", ""},
		{"*2\r\n*1048575\r\n", reasonElements},
		{"+" + strings.Repeat("x", DefaultMaxLineBytes), reasonBigLine},
		{"$" + strings.Repeat("1", DefaultMaxLineBytes), reasonBigBulk},
		{"*" + strings.Repeat("1", DefaultMaxLineBytes), reasonBigMultibulk},
	} {
		for _, chunk := range []int{1, 2, len(c.in)} {
			_, err := parseValues(t, Config{}, c.in, chunk)
			if c.reason == "" {
				assert.NoError(t, err, "%.60q by %d bytes", c.in, chunk)
				continue
			}
			var pe *ProtocolError
			if assert.ErrorAs(t, err, &pe, "%.60q by %d bytes", c.in, chunk) {
				assert.Equal(t, c.reason, pe.Reason, "%.60q by %d bytes", c.in, chunk)
			}
		}
	}
}

func TestValueLimitsHoldAtTheLastByte(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   Config
		limit int
		in    func(n int) string
	}{
		{"bulk", Config{MaxBulkBytes: 10}, 10, func(n int) string {
			return "$" + strconv.Itoa(n) + "\r\n" + strings.Repeat("x", n) + "\r\n"
		}},
		{"elements", Config{MaxElements: 5}, 5, func(n int) string {
			return "*" + strconv.Itoa(n) + "\r\n" + strings.Repeat(":1\r\n", n)
		}},
		{"elements of all arrays", Config{MaxElements: 5}, 5, func(n int) string {
			return "*2\r\n:1\r\n*" + strconv.Itoa(n-2) + "\r\n" + strings.Repeat(":1\r\n", n-2)
		}},
		{"depth", Config{MaxDepth: 3}, 3, func(n int) string { return strings.Repeat("*1\r\n", n) + ":1\r\n" }},
		{"depth of an empty array", Config{MaxDepth: 3}, 3, func(n int) string {
			return strings.Repeat("*1\r\n", n-1) + "*0\r\n"
		}},
		{"line", Config{MaxLineBytes: 10}, 10, func(n int) string { return "+" + strings.Repeat("x", n-2) + "\r\n" }},
		{"message", Config{MaxMessageBytes: 30}, 30, func(n int) string {
			return "*1\r\n$" + strconv.Itoa(n-11) + "\r\n" + strings.Repeat("x", n-11) + "\r\n"
		}},
		{"message of lines", Config{MaxMessageBytes: 30}, 30, func(n int) string {
			return "*2\r\n:1\r\n+" + strings.Repeat("x", n-11) + "\r\n"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for n := c.limit - 1; n <= c.limit+1; n++ {
				for _, chunk := range []int{1, 1000} {
					got, err := parseValues(t, c.cfg, c.in(n), chunk)
					if n <= c.limit {
						assert.NoError(t, err, n)
						assert.Len(t, got, 1, n)
					} else {
						assert.ErrorIs(t, err, ErrProtocol, n)
					}
				}
			}
		})
	}
}

func TestElementsAreCountedPerMessage(t *testing.T) {
	in := strings.Repeat("*3\r\n:1\r\n*2\r\n:2\r\n:3\r\n:4\r\n", 5)
	got, err := parseValues(t, Config{MaxElements: 5}, in, 7)
	require.NoError(t, err)
	assert.Len(t, got, 5)
}

func TestValueParserNeverLooksBack(t *testing.T) {
	in := "*3\r\n*2\r\n:1\r\n$100\r\n" + strings.Repeat("x", 100) + "\r\n+" +
		strings.Repeat("y", 50) + "\r\n*1\r\n*1\r\n:1\r\n"
	p, err := NewValueParser(Config{})
	require.NoError(t, err)
	seen := make([]byte, 0, len(in))
	for i := range len(in) {
		seen = append(seen, in[i])
		v, n, err := p.Decode(seen)
		if i < len(in)-1 {
			require.Equal(t, codec.ErrShort, err)
			for j := range p.pos {
				seen[j] = '!'
			}
			if j := p.pos + 5; j < p.scanned && seen[p.pos] == '+' {
				seen[j] = '\n' // a line end where there was none
			}
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, len(in), n)
		assert.Len(t, v.Elems, 3)
		assert.Len(t, v.Elems[0].Elems[1].Bytes, 100)
		assert.Equal(t, int64(1), v.Elems[2].Elems[0].Elems[0].Int)
	}
}

func TestRepliesAreParsedWithoutAllocation(t *testing.T) {
	in := []byte(strings.Repeat("+OK\r\n:12\r\n$5\r\nvalue\r\n*2\r\n$1\r\na\r\n*1\r\n$-1\r\n", 10))
	p, err := NewValueParser(Config{})
	require.NoError(t, err)
	allocs := testing.AllocsPerRun(100, func() {
		for rest := in; len(rest) > 0; {
			_, n, err := p.Decode(rest)
			if err != nil {
				panic(err)
			}
			rest = rest[n:]
		}
	})
	assert.Zero(t, allocs)
}

func TestLargeValuesLeaveNoMemoryBehind(t *testing.T) {
	p, err := NewValueParser(Config{})
	require.NoError(t, err)
	_, _, err = p.Decode([]byte("*2000\r\n" + strings.Repeat("+a\r\n", 2000)))
	require.NoError(t, err)
	p.trim()
	assert.Nil(t, p.arena)
	assert.Nil(t, p.nodes)
	v, _, err := p.Decode([]byte("+OK\r\n"))
	require.NoError(t, err)
	p.trim()
	assert.Nil(t, v.Bytes, "a reference to the input")
}

func TestCloneSharesNothing(t *testing.T) {
	in := []byte("*2\r\n$1\r\na\r\n*1\r\n+b\r\n")
	p, err := NewValueParser(Config{})
	require.NoError(t, err)
	v, _, err := p.Decode(in)
	require.NoError(t, err)
	c := v.Clone()
	clear(in)
	p.trim()
	assert.Equal(t, array(bulk("a"), array(simple("b"))), *c)
}
