package resp

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/codec"
)

// wire is the request of the given arguments.
func wire(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// parseCommands feeds in to a new parser, growing by chunk bytes at a time, and returns the requests that are not
// empty.
func parseCommands(t testing.TB, cfg Config, in string, chunk int) (got [][]string, err error) {
	p, err := NewCommandParser(cfg)
	require.NoError(t, err)
	start, all := 0, []byte(in)
	for end := min(chunk, len(in)); ; end = min(end+chunk, len(in)) {
		for {
			cmd, n, err := p.Decode(all[start:end])
			if err == codec.ErrShort {
				break
			}
			if err != nil {
				return got, err
			}
			require.Positive(t, n)
			start += n
			if len(cmd.Args) > 0 {
				got = append(got, texts(cmd.Args))
			}
		}
		if end == len(in) {
			return got, nil
		}
	}
}

func texts(args [][]byte) []string {
	var s []string
	for _, a := range args {
		s = append(s, string(a))
	}
	return s
}

func TestCommandsAreReadAsRedisReadsThem(t *testing.T) {
	ping := wire("PING")
	for _, c := range []struct {
		in   string
		want [][]string
	}{
		{ping, [][]string{{"PING"}}},
		{wire("SET", "k", "a\r\nb\x00") + ping, [][]string{{"SET", "k", "a\r\nb\x00"}, {"PING"}}},
		{wire("ECHO", ""), [][]string{{"ECHO", ""}}},
		{"*0\r\n*-1\r\n*-5\r\n" + ping, [][]string{{"PING"}}},
		{"\r\n\n\r\n \t\n" + ping, [][]string{{"PING"}}},
		{"PING\n" + ping + "\r\nPING\r\n", [][]string{{"PING"}, {"PING"}, {"PING"}}},
		{" \t PING\t a  b \r\n", [][]string{{"PING", "a", "b"}}},
		{"PING \"a b\"\r\n", [][]string{{"PING", "a b"}}},
		{`PING "a\x41\n\r\t\b\a\q\\\""` + "\n", [][]string{{"PING", "aA\n\r\t\b\aq\\\""}}},
		{`PING 'a\'b\x41'` + "\n", [][]string{{"PING", `a'b\x41`}}},
		{`PING a"b c"` + "\n", [][]string{{"PING", "ab c"}}},
		{`PING "" ''` + "\n", [][]string{{"PING", "", ""}}},
		{`PING "\x4" \x41` + "\n", [][]string{{"PING", "x4", `\x41`}}},
		{"PING \va\vb\n", [][]string{{"PING", "a\vb"}}},
		{"PING \"a\vb\"\vc\n", [][]string{{"PING", "a\vb", "c"}}},
		{"P\x00 a\n", [][]string{{"P\x00", "a"}}}, // Redis never sees the line end behind a NUL
	} {
		for _, chunk := range []int{1, 2, 3, 7, len(c.in)} {
			got, err := parseCommands(t, Config{}, c.in, chunk)
			assert.NoError(t, err, "%q by %d bytes", c.in, chunk)
			assert.Equal(t, c.want, got, "%q by %d bytes", c.in, chunk)
		}
	}
}

func TestMalformedCommandsAreRefusedInTheWordsOfRedis(t *testing.T) {
	long := strings.Repeat("1", DefaultMaxLineBytes)
	for _, c := range []struct{ in, reason string }{
		{"*a\r\n", reasonMultibulk},
		{"*\r\n", reasonMultibulk},
		{"*01\r\n", reasonMultibulk},
		{"*+1\r\n", reasonMultibulk},
		{"*-0\r\n", reasonMultibulk},
		{"*1 \r\n", reasonMultibulk},
		{"*1\rX", reasonMultibulk},
		{"*1\n$4\r\n", reasonMultibulk},
		{"*1048577\r\n", reasonMultibulk},
		{"*99999999999999999999999\r\n", reasonMultibulk},
		{"*1\r\n#4\r\n", "expected '$', got '#'"},
		{"*1\r\n\r\n", "expected '$', got ' '"},
		{"*1\r\n\n\r\n", "expected '$', got ' '"},
		{"*1\r\n\xff\r\n", "expected '$', got '\xff'"},
		{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n:1\r\n", "expected '$', got ':'"},
		{"*1\r\n$-1\r\n", reasonBulk},
		{"*1\r\n$\r\n", reasonBulk},
		{"*1\r\n$04\r\n", reasonBulk},
		{"*1\r\n$4\nPING\r\n", reasonBulk},
		{"*1\r\n$4\rX", reasonBulk},
		{"*1\r\n$536870913\r\n", reasonBulk},
		{"*1\r\n$4\r\nPINGx", reasonBulkEnd},
		{"*1\r\n$4\r\nPING\rx", reasonBulkEnd},
		{"PING \"abc\n", reasonQuotes},
		{"PING \"abc\"d\n", reasonQuotes},
		{"PING 'abc\n", reasonQuotes},
		{"PING 'abc'd\n", reasonQuotes},
		{"PING \"\\\"\n", reasonQuotes},
		{"PING \"\\\n", reasonQuotes},
		{"a" + long, reasonBigInline},
		{"*" + long, reasonBigMultibulk},
		{"*1\r\n$" + long, reasonBigBulk},
	} {
		for _, chunk := range []int{1, 2, len(c.in)} {
			got, err := parseCommands(t, Config{}, c.in, chunk)
			assert.Empty(t, got)
			var pe *ProtocolError
			if assert.ErrorAs(t, err, &pe, "%.60q by %d bytes", c.in, chunk) {
				assert.Equal(t, c.reason, pe.Reason, "%.60q by %d bytes", c.in, chunk)
				assert.ErrorIs(t, err, ErrProtocol)
				assert.Equal(t, "ERR Protocol error: "+c.reason, pe.Reply())
			}
		}
	}
}

func TestCommandLimitsHoldAtTheLastByte(t *testing.T) {
	cfg := Config{MaxBulkBytes: 10, MaxElements: 3, MaxLineBytes: 20, MaxMessageBytes: 40}
	args := func(n int) string { return wire(make([]string, n)...) }
	line := func(n int) string { return strings.Repeat("x", n) + "\n" }
	message := func(n int) string { return wire("123456789", strings.Repeat("x", n-25)) } // n bytes
	require.Len(t, message(30), 30)
	for _, c := range []struct {
		name  string
		in    func(n int) string
		limit int
		cfg   Config
	}{
		{"bulk", func(n int) string { return wire(strings.Repeat("x", n)) }, 10, cfg},
		{"elements", args, 3, cfg},
		{"line", line, 20, cfg},
		{"message", message, 30, Config{MaxBulkBytes: 1000, MaxElements: 3, MaxMessageBytes: 30}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for n := c.limit - 1; n <= c.limit+1; n++ {
				for _, chunk := range []int{1, 1000} {
					got, err := parseCommands(t, c.cfg, c.in(n), chunk)
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
	for _, c := range []struct{ prefix, bad, tooBig string }{
		{"*", reasonMultibulk, reasonBigMultibulk}, {"*1\r\n$", reasonBulk, reasonBigBulk},
	} {
		for n := 19; n <= 21; n++ {
			_, err := parseCommands(t, cfg, c.prefix+strings.Repeat("9", n-1)+"\r\n", 1000)
			var pe *ProtocolError
			require.ErrorAs(t, err, &pe)
			if n <= 20 {
				assert.Equal(t, c.bad, pe.Reason)
			} else {
				assert.Equal(t, c.tooBig, pe.Reason)
			}
		}
	}
	for _, prefix := range []string{"*", "*1\r\n$"} { // the type byte counts
		n := 20 - 1
		p, err := NewCommandParser(cfg)
		require.NoError(t, err)
		_, _, err = p.Decode([]byte(prefix + strings.Repeat("1", n)))
		assert.Equal(t, codec.ErrShort, err)
		_, _, err = p.Decode([]byte(prefix + strings.Repeat("1", n+1)))
		assert.ErrorIs(t, err, ErrProtocol)
	}
}

func TestConfigsWithoutSenseAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{MaxBulkBytes: -1}, {MaxElements: -1}, {MaxLineBytes: -1}, {MaxDepth: -1}, {MaxMessageBytes: 1 << 32},
	} {
		_, err := NewCommandParser(cfg)
		assert.ErrorIs(t, err, ErrConfig)
		_, err = NewValueParser(cfg)
		assert.ErrorIs(t, err, ErrConfig)
	}
}

// What a parser has looked at it must not look at again: else a large message that arrives in small pieces costs time
// that grows with the square of its size. So everything seen is spoiled before the next byte comes.
func TestCommandParserNeverLooksBack(t *testing.T) {
	in := wire("SET", strings.Repeat("k", 100), strings.Repeat("v", 100), "", "x")
	p, err := NewCommandParser(Config{})
	require.NoError(t, err)
	seen := make([]byte, 0, len(in))
	for i := range len(in) {
		seen = append(seen, in[i])
		cmd, n, err := p.Decode(seen)
		if i < len(in)-1 {
			require.Equal(t, codec.ErrShort, err)
			for j := range p.pos {
				seen[j] = '!'
			}
			assert.GreaterOrEqual(t, p.pos+max(p.bulk, 0)+6, len(seen), "all but the unfinished piece is behind it")
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, len(in), n)
		assert.Len(t, cmd.Args, 5)
		assert.Len(t, cmd.Args[2], 100)
	}
}

func TestInlineParserNeverLooksBack(t *testing.T) {
	p, err := NewCommandParser(Config{})
	require.NoError(t, err)
	_, _, err = p.Decode([]byte("hello"))
	require.Equal(t, codec.ErrShort, err)
	cmd, n, err := p.Decode([]byte("he\nlo\n")) // a line end where there was none
	require.NoError(t, err)
	assert.Equal(t, 6, n)
	assert.Equal(t, []string{"he", "lo"}, texts(cmd.Args))
}

func TestProtocolErrorsAreFinal(t *testing.T) {
	p, err := NewCommandParser(Config{})
	require.NoError(t, err)
	_, _, first := p.Decode([]byte("*x\r\n"))
	require.ErrorIs(t, first, ErrProtocol)
	_, _, second := p.Decode([]byte(wire("PING")))
	assert.Equal(t, first, second)
}

func TestArgumentsCannotGrowIntoTheirNeighbours(t *testing.T) {
	p, err := NewCommandParser(Config{})
	require.NoError(t, err)
	for _, in := range []string{wire("SET", "k", "v"), "SET k v\r\n", "SET 'k' \"v\"\r\n"} {
		cmd, _, err := p.Decode([]byte(in))
		require.NoError(t, err)
		_ = append(cmd.Args[1], "##"...)
		_ = append(cmd.Args[1], "overwritten"...)
		assert.Equal(t, []string{"SET", "k", "v"}, texts(cmd.Args))
	}
}

// allocated is what fn allocates, in bytes.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestAnnouncedSizesAllocateNothing(t *testing.T) {
	for _, in := range []string{
		"*1048576\r\n$1\r\na\r\n", "*1\r\n$536870912\r\nabc",
		"$536870912\r\nabc", "*1048576\r\n:1\r\n",
	} {
		n := allocated(func() {
			c, err := NewCommandParser(Config{})
			require.NoError(t, err)
			v, err := NewValueParser(Config{})
			require.NoError(t, err)
			if in[0] == '*' && !strings.Contains(in, ":1") {
				_, _, err = c.Decode([]byte(in))
				require.Equal(t, codec.ErrShort, err)
			}
			_, _, err = v.Decode([]byte(in))
			require.Equal(t, codec.ErrShort, err)
		})
		assert.Less(t, n, uint64(16<<10), in)
	}
}

func TestPipelinedCommandsAreParsedWithoutAllocation(t *testing.T) {
	in := []byte(strings.Repeat(wire("SET", "key:000001", "value")+wire("GET", "key:000001")+"PING\r\n", 10))
	p, err := NewCommandParser(Config{})
	require.NoError(t, err)
	count := 0
	allocs := testing.AllocsPerRun(100, func() {
		for rest := in; len(rest) > 0; {
			_, n, err := p.Decode(rest)
			if err != nil {
				panic(err)
			}
			rest = rest[n:]
			count++
		}
	})
	assert.Zero(t, allocs)
	assert.Equal(t, 101*30, count)
}

func TestLargeRequestsLeaveNoMemoryBehind(t *testing.T) {
	p, err := NewCommandParser(Config{})
	require.NoError(t, err)
	_, _, err = p.Decode([]byte(wire(make([]string, keptElements+1)...)))
	require.NoError(t, err)
	p.trim()
	assert.Nil(t, p.cmd.Args)
	assert.Nil(t, p.spans)
	cmd, _, err := p.Decode([]byte(wire("GET", "k")))
	require.NoError(t, err)
	p.trim()
	assert.Nil(t, cmd.Args[0], "a reference to the input")
	assert.Nil(t, cmd.Args[1], "a reference to the input")
}
