package redistest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec/resp"
)

// generator makes requests: all commands, few keys, so that they meet, and much that is wrong.
type generator struct {
	*rand.Rand
	expiries int64 // makes every time to live another: which of two equal ones is later depends on the clock
}

func newGenerator(seed uint64) *generator { return &generator{Rand: rand.New(rand.NewPCG(seed, 1))} }

// forms are the commands, and what their arguments are: k a key, v a value, m one of few members, i an integer, n a
// small one, r a version of the protocol, h an option of HELLO, u a user, a a name, w on or off, t a time to live, o
// options of SET, x conditions of EXPIRE, p a pattern, d a database, lower-case words themselves; what is behind … may
// be repeated.
//
//weir:immutable data
var forms = []string{
	"PING", "PING v", "ECHO v", "SET k v", "SET k i", "SET k v o", "SET k v o o", "GET k", "GETSET k v", "DEL k … k",
	"EXISTS k … k",
	"INCR k", "DECR k", "INCRBY k i", "DECRBY k i", "MSET k v … k v", "MGET k … k", "APPEND k v", "STRLEN k",
	"LPUSH k v … v", "RPUSH k v … v", "LPOP k", "RPOP k", "LPOP k n", "RPOP k n", "LRANGE k n n", "LLEN k",
	"SADD k m … m", "SREM k m … m", "SPOP k", "SPOP k n", "SMEMBERS k", "SCARD k",
	"HSET k m v … m v", "HGET k m", "HDEL k m … m", "HGETALL k",
	"EXPIRE k t", "PEXPIRE k t", "EXPIRE k t x", "PEXPIRE k t x x", "TTL k", "PTTL k", "TYPE k", "KEYS p", "DBSIZE",
	"INFO", "INFO v", "CONFIG GET c", "CONFIG GET c c", "CONFIG v", "COMMAND COUNT", "COMMAND v", "SELECT d", "v … v",
	"MULTI", "EXEC", "EXEC", "EXEC", "DISCARD", "WATCH k", "WATCH k … k", "UNWATCH", "RESET",
	"HELLO", "HELLO 2", "HELLO 3", "HELLO r", "HELLO r h", "HELLO r h h", "AUTH v", "AUTH u v",
	"CLIENT ID", "CLIENT GETNAME", "CLIENT SETNAME a", "CLIENT INFO", "CLIENT v", "CLIENT NO-EVICT w",
}

//weir:immutable data
var (
	databases  = []string{"0", "1", "15"}
	versions   = []string{"2", "3", "1", "4", "x", "03", "9223372036854775808", "-3"}
	users      = []string{"default", "nobody", "", "Default"}
	names      = []string{"me", "me!~", "", "a b", "\x7f", "line\n"}
	selections = []string{"0", "0", "0", "1", "15", "16", "-1", "x", "2147483648"}
	keyNames   = []string{"a", "b", "c", "d", "key:1", "key:2", "key:10", "", "A", "\xff\x00\r\n", "[x]", "*"}
	members    = []string{"m1", "m2", "m3", "m4", "m5", "m6", "", "\x00", "\r\n", "12"}
	integers   = []string{
		"0", "1", "-1", "2", "10", "100", "-100", "9223372036854775807", "-9223372036854775808",
		"9223372036854775806", "-9223372036854775807",
	}
	notInts = []string{
		"", "x", "1x", " 1", "1 ", "+1", "01", "-0", "-", "1.5", "9223372036854775808",
		"-9223372036854775809", "99999999999999999999999", "0x1", "1_0", "١",
	}
	badExpiries = []string{
		"0", "9223372036854775807", "9223372036854775806", "9223372036854775", "9223372036854774",
		"-9223372036854775808",
	}
	patterns = []string{
		"*", "k*", "key:?", "key:[0-9]", "[^k]*", "[a-c]", "?", "\\*", "[[]x]", "*:*", "**",
		"[b-", "[\\", "[^", "[", "\\", "key:1*", "[A-Z]", "[z-a]", "*[\x80-\xff]*",
	}
	settings = []string{
		"save", "appendonly", "databases", "maxmemory", "maxmemory-policy", "proto-max-bulk-len", "SAVE",
		"no-such-setting",
	}
	options   = []string{"NX", "XX", "GET", "KEEPTTL", "EX", "PX", "EXAT", "PXAT", "nx", "Get", "nonsense"}
	condition = []string{"NX", "XX", "GT", "LT", "gt", "nonsense", "no\r\nsense\r\n"}
)

func pick(g *generator, from []string) string { return from[g.IntN(len(from))] }

// request is a whole request. It has at least one argument.
func (g *generator) request() []string {
	words := strings.Fields(forms[g.IntN(len(forms))])
	if g.IntN(400) == 0 {
		words = []string{"FLUSHALL"}
	}
	var args []string
	rest := -1 // the words that may be repeated begin here
	for i := 0; i < len(words); i++ {
		if words[i] == "…" {
			rest = i + 1
			break
		}
		args = append(args, g.word(words[i])...)
	}
	for rest >= 0 && g.IntN(2) == 0 {
		for _, w := range words[rest:] {
			args = append(args, g.word(w)...)
		}
	}
	switch g.IntN(40) {
	case 0:
		args = args[:1+g.IntN(len(args))] // arguments are missing
	case 1:
		args = append(args, g.word("v")...) // or one too many
	case 2:
		args[0] = mixCase(g, args[0])
	}
	return args
}

func (g *generator) word(w string) []string {
	switch w {
	case "k":
		return []string{pick(g, keyNames)}
	case "m":
		return []string{pick(g, members)}
	case "v":
		return []string{g.value()}
	case "i":
		return []string{g.integer()}
	case "n":
		if g.IntN(20) == 0 {
			return []string{g.integer()}
		}
		return []string{fmt.Sprint(g.IntN(9) - 3)}
	case "t":
		return []string{g.expiry()}
	case "o":
		return g.option()
	case "x":
		return []string{pick(g, condition)}
	case "p":
		if g.IntN(4) == 0 {
			return []string{g.pattern()}
		}
		return []string{pick(g, patterns)}
	case "c":
		return []string{pick(g, settings)}
	case "d":
		return []string{pick(g, selections)}
	case "r":
		return []string{pick(g, versions)}
	case "h":
		return [][]string{
			{"AUTH", pick(g, users), "x"},
			{"SETNAME", pick(g, names)},
			{"AUTH"},
			{"setname"},
			{"AUTH", "x"},
			{"no\r\nsense"},
		}[g.IntN(6)]
	case "u":
		return []string{pick(g, users)}
	case "a":
		return []string{pick(g, names)}
	case "w":
		return []string{pick(g, []string{"on", "OFF", "x"})}
	}
	return []string{w}
}

func (g *generator) value() string {
	switch g.IntN(8) {
	case 0:
		return g.integer()
	case 1:
		return strings.Repeat("x", g.IntN(3000))
	case 2:
		return pick(g, members)
	}
	return g.bytes(g.IntN(20))
}

func (g *generator) bytes(n int) string {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(g.Uint32())
	}
	return string(p)
}

func (g *generator) integer() string {
	if g.IntN(4) == 0 {
		return pick(g, notInts)
	}
	return pick(g, integers)
}

// expiry is a time to live that is over at once, far away, or nonsense.
func (g *generator) expiry() string {
	switch g.IntN(6) {
	case 0:
		if g.IntN(2) == 0 {
			return pick(g, notInts)
		}
		return pick(g, badExpiries)
	case 1:
		return fmt.Sprint(-g.IntN(1000))
	}
	g.expiries++
	return fmt.Sprint(1_000_000_000 + 1_000_000*g.Int64N(7000) + clockSlack*g.expiries)
}

func (g *generator) option() []string {
	o := pick(g, options)
	switch strings.ToUpper(o) {
	case "EX", "PX":
		return []string{o, g.expiry()}
	case "EXAT":
		return []string{o, []string{"1", "1000000000", "0", "99999999999", "x", "9223372036854775807"}[g.IntN(6)]}
	case "PXAT":
		times := []string{"1", "1000000000000", "-5", "99999999999999", "x", "9223372036854775807"}
		return []string{o, times[g.IntN(len(times))]}
	}
	return []string{o}
}

func (g *generator) pattern() string {
	const alphabet = "*?[]^-\\ak:1\xff"
	p := make([]byte, g.IntN(10))
	for i := range p {
		p[i] = alphabet[g.IntN(len(alphabet))]
	}
	return string(p)
}

func mixCase(g *generator, s string) string {
	p := []byte(s)
	for i := range p {
		if g.IntN(2) == 0 && p[i] >= 'A' && p[i] <= 'Z' {
			p[i] += 'a' - 'A'
		}
	}
	return string(p)
}

// wire is the request in bytes: mostly an array, at times inline.
func (g *generator) wire(args []string) []byte {
	if g.IntN(10) == 0 {
		return []byte(inlineWire(g, args))
	}
	return arrayWire(args)
}

func arrayWire(args []string) []byte {
	b := buffer.New(256)
	resp.AppendArrayHeader(b, len(args))
	for _, a := range args {
		resp.AppendBulkString(b, a)
	}
	return b.Bytes()
}

func inlineWire(g *generator, args []string) string {
	var line strings.Builder
	for _, a := range args {
		line.WriteString([]string{" ", "\t", "  "}[g.IntN(3)])
		line.WriteByte('"')
		for _, c := range []byte(a) {
			switch {
			case c == '"' || c == '\\':
				line.WriteByte('\\')
				line.WriteByte(c)
			case c == '\n':
				line.WriteString(`\n`)
			case c < ' ' || c > '~':
				fmt.Fprintf(&line, `\x%02x`, c)
			default:
				line.WriteByte(c)
			}
		}
		line.WriteByte('"')
	}
	return line.String() + []string{"\n", "\r\n"}[g.IntN(2)]
}
