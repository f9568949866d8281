package decode

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newSyslog returns a Syslog on the last day of November 2026.
func newSyslog() *Syslog {
	return NewSyslog(nil, func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) })
}

func line(d Decoder, frame string) (string, bool) {
	l := NewLine(d, time.Unix(0, 0), "c")
	got, ok := l.Append(nil, []byte(frame))
	return strings.TrimSuffix(strings.TrimPrefix(string(got), `{"at":"1970-01-01T00:00:00.000Z","from":"c",`),
		"}\n"), ok
}

func TestFramesBecomeLines(t *testing.T) {
	for _, c := range []struct {
		decoder Decoder
		frame   string
		want    string
	}{
		{Graphite{}, "a.b 1.5 1700000000", `"format":"graphite","path":"a.b","value":1.5,"time":1700000000`},
		{
			Graphite{},
			"  a.b\t-2e3  1700000000.5\r",
			`"format":"graphite","path":"a.b","value":-2000,"time":1700000000.5`,
		},
		{
			Graphite{},
			"a;dc=x;host= 1 -1",
			`"format":"graphite","path":"a","tags":{"dc":"x","host":""},"value":1,"time":-1`,
		},
		{Graphite{}, "a 1e20 0", `"format":"graphite","path":"a","value":100000000000000000000,"time":0`},
		{Graphite{}, "a 1e21 1e-6", `"format":"graphite","path":"a","value":1e+21,"time":0.000001`},
		{Graphite{}, "a 1e308 9e-7", `"format":"graphite","path":"a","value":1e+308,"time":9e-07`},
		{Graphite{}, "a nan 1", `"format":"graphite","path":"a","value":"NaN","time":1`},
		{Graphite{}, "a inf 1", `"format":"graphite","path":"a","value":"+Inf","time":1`},
		{Statsd{}, "hits:1|c", `"format":"statsd","name":"hits","type":"c","value":1`},
		{
			Statsd{},
			"hits:1|c|@0.1|#a:b,c",
			`"format":"statsd","name":"hits","type":"c","value":1,"rate":0.1,"tags":["a:b","c"]`,
		},
		{Statsd{}, "t:320|ms\r", `"format":"statsd","name":"t","type":"ms","value":320`},
		{Statsd{}, "g:-3|g", `"format":"statsd","name":"g","type":"g","value":-3,"delta":true`},
		{Statsd{}, "g:3|g", `"format":"statsd","name":"g","type":"g","value":3`},
		{Statsd{}, "u:a\"b|s|c:id", `"format":"statsd","name":"u","type":"s","value":"a\"b","more":["c:id"]`},
		{JSON{}, " {\"a\" : [1,\n 2]} ", `"format":"json","body":{"a":[1,2]}`},
		{
			newSyslog(), `<165>1 2003-10-11T22:14:15.003Z host app 12 ID47 [a@1 y="2" x="\]"][b@1] hello "you"`,
			`"format":"syslog5424","facility":20,"severity":5,"time":"2003-10-11T22:14:15.003Z","host":"host","app":"app","process":"12",` +
				`"id":"ID47","message":"hello \"you\"","data":{"a@1":{"x":"]","y":"2"},"b@1":{}}`,
		},
		{newSyslog(), "<0>1 - - - - - -", `"format":"syslog5424","facility":0,"severity":0`},
		{
			newSyslog(), "<34>Oct 11 22:14:15 host su[7]: no way",
			`"format":"syslog3164","facility":4,"severity":2,"time":"2026-10-11T22:14:15Z","host":"host","app":"su","process":"7","message":"no way"`,
		},
		{
			newSyslog(), "<191>2026-11-30T05:16:29.062658+01:00 host load: m",
			`"format":"syslog3164","facility":23,"severity":7,"time":"2026-11-30T05:16:29.062658+01:00","host":"host","app":"load","message":"m"`,
		},
		{
			NewSyslog(time.FixedZone("", 3600), newSyslog().now), "<34>Oct  1 22:14:15 host su: no",
			`"format":"syslog3164","facility":4,"severity":2,"time":"2026-10-01T22:14:15+01:00","host":"host","app":"su","message":"no"`,
		},
	} {
		got, ok := line(c.decoder, c.frame)
		assert.True(t, ok, c.frame)
		assert.Equal(t, c.want, got, c.frame)
	}
}

func TestWhatIsMalformedIsKeptAsItIs(t *testing.T) {
	for _, c := range []struct {
		decoder Decoder
		frame   string
		want    string
	}{
		{Graphite{}, "", `"error":"decode: malformed graphite: not three fields","raw":""`},
		{Graphite{}, "a 1", `"error":"decode: malformed graphite: not three fields","raw":"a 1"`},
		{Graphite{}, "a 1 2 3", `"error":"decode: malformed graphite: not three fields","raw":"a 1 2 3"`},
		{Graphite{}, "a x 3", `"error":"decode: malformed graphite: value","raw":"a x 3"`},
		{Graphite{}, "a 1 x", `"error":"decode: malformed graphite: timestamp","raw":"a 1 x"`},
		{Graphite{}, "a;b 1 2", `"error":"decode: malformed graphite: tag","raw":"a;b 1 2"`},
		{Graphite{}, "a;=b 1 2", `"error":"decode: malformed graphite: tag","raw":"a;=b 1 2"`},
		{Statsd{}, ":1|c", `"error":"decode: malformed statsd: name","raw":":1|c"`},
		{Statsd{}, "a", `"error":"decode: malformed statsd: name","raw":"a"`},
		{Statsd{}, "a:1", `"error":"decode: malformed statsd: value","raw":"a:1"`},
		{Statsd{}, "a:x|c", `"error":"decode: malformed statsd: value","raw":"a:x|c"`},
		{Statsd{}, "a:1|x", `"error":"decode: malformed statsd: type","raw":"a:1|x"`},
		{Statsd{}, "a:1|c|@2", `"error":"decode: malformed statsd: rate","raw":"a:1|c|@2"`},
		{Statsd{}, "a:1|c|@nan", `"error":"decode: malformed statsd: rate","raw":"a:1|c|@nan"`},
		{Statsd{}, "a:1|c||", `"error":"decode: malformed statsd: empty section","raw":"a:1|c||"`},
		{JSON{}, "{", `"error":"decode: malformed JSON: unexpected EOF, at byte 1","raw":"{"`},
		{JSON{}, "\xff\x00", `"error":"decode: malformed text: not UTF-8","bytes":"/wA="`},
	} {
		got, ok := line(c.decoder, c.frame)
		assert.False(t, ok, c.frame)
		assert.Equal(t, c.want, got, c.frame)
	}
	for _, frame := range []string{"", "<", "<1", "<13>", "<999>1 - - - - - -", "hello", "<13>1 x", "<13>x"} {
		got, ok := line(newSyslog(), frame)
		assert.False(t, ok, frame)
		assert.Contains(t, got, `"raw":`+string(AppendString(nil, frame)), frame)
	}
}

// Strings are those of encoding/json without its escapes for HTML.
func TestStringsAreJSON(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, s := range []string{"", "plain", string(all), "\u2028 é 世界 😀", "\xf0\x9f", "a\xffb", "\ufffd"} {
		var got string
		require.NoError(t, json.Unmarshal(AppendString(nil, s), &got), "%q", s)
		assert.Equal(t, string([]rune(s)), got, "%q", s)
	}
	assert.Equal(t, `"-Inf"`, string(appendNumber(nil, math.Inf(-1))))
}

// The level counts frames that are being decoded at what their lines may have.
func TestALineHasNoMoreThanItsFrameAndTheOverhead(t *testing.T) {
	const from = "[fe80::1111:2222:3333:4444%abcdefghijklmno]:65535" // there is no longer one
	long := strings.Repeat("x", 10_000)
	number := strings.Repeat("9", 300)
	syslog := NewSyslog(time.FixedZone("", 5400), nil)
	most := 0
	for _, c := range []struct {
		decoder Decoder
		frames  []string
	}{
		{Graphite{}, []string{
			"", "a 1 1", "a 9e20 9e20", "a;b= -9e20 -9e20", "a 0x1p-19 -0x1p-19", "a nan inf", long,
			long + ";x=" + long + " 9e20 9e20", "a " + number + " 1",
		}},
		{Statsd{}, []string{
			"", "a", "a:1|c", "a:+9e20|g|@0x1p-19|#", "a:-9e20|g|@1e-6|#a|b", "a:|s", long,
			long + ":" + number + "|ms|#" + long, "a:" + long + "|s|@1|" + long,
		}},
		{JSON{}, []string{"", "1", "{1", "falsx", "{\"\x00", "{\"a\":\"\\x", `"` + long + `"`, long}},
		{syslog, []string{
			"", "<", "<1>1 - - - - - -", `<14>1 2003-10-11T22:14:15Z h a p i [a b="c"] m`,
			"<14>1 2003-10-11T22:14:15Z h a p i [a  b", "<14>1 2003-10-11T22:14:15Z",
			"<34>Oct  1 22:14:15 h a[7]: m", "<34>0:Oct 1 22:14:15 h a[7]: m", "<34>*Oct 1 22:14:15,1 h a[7]: m",
			"<34>2026-01-02T03:04:05.123456789+01:30 h a[7]: m", "<34>Oct  1 22:14:15 h m", "<14>1 - h a p i - " +
				long, "<34>Oct  1 22:14:15 h a: " + long, "<13>1 " + long,
		}},
	} {
		for _, frame := range c.frames {
			l := NewLine(c.decoder, time.Unix(0, 0), from)
			line, _ := l.Append(nil, []byte(frame))
			assert.LessOrEqual(t, len(line), len(frame)+OverheadBytes, "%s", line[:min(len(line), 300)])
			most = max(most, len(line)-len(frame))
		}
	}
	assert.Greater(t, most, OverheadBytes-16, "no more than it has to be")
}

// Whatever a client sends becomes one line of JSON, and a frame that is not understood can be had back from it.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		"", "a.b;k=v 1 2", "a:1|c|@0.1|#x", "{\"a\":1}", "<13>Oct 11 22:14:15 h a: m",
		"<165>1 2003-10-11T22:14:15.003Z h a 1 2 [a@1 x=\"y\"] m",
		"\xff\x00\n", "a\xffb 1 2", "a:1|c|\x01|\x01|\x01|\x01",
	} {
		f.Add([]byte(seed))
	}
	decoders := []Decoder{Graphite{}, Statsd{}, JSON{}, newSyslog()}
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, d := range decoders {
			l := NewLine(d, time.Unix(0, 0), "from")
			kept := strings.Clone(string(frame))
			got, ok := l.Append(nil, frame)
			require.Equal(t, kept, string(frame), "the frame is borrowed")
			require.True(t, jsontext.Value(got).IsValid(), "%T: %q", d, got) // and no object has a name twice
			require.Equal(t, -1, bytes.IndexFunc(got, func(r rune) bool { return r != '\n' && (r < ' ' || isUnsafe(r)) }))
			require.Equal(t, 1, strings.Count(string(got), "\n"))
			require.LessOrEqual(t, len(got), OverheadBytes+MultipleBytes*len(frame))
			var members struct {
				Raw   *string
				Bytes []byte
			}
			require.NoError(t, json.Unmarshal(got, &members))
			if ok {
				continue
			}
			if members.Raw != nil {
				require.Equal(t, string(frame), *members.Raw)
			} else {
				require.Equal(t, string(frame), string(members.Bytes))
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name    string
		decoder Decoder
		frame   string
	}{
		{"graphite", Graphite{}, "servers.host17.cpu.user 12.5 1700000000"},
		{"statsd", Statsd{}, "page.views:1|c|@0.1|#host:a"},
		{"json", JSON{}, `{"seq":17,"crc":123456,"text":"hello"}`},
		{"syslog3164", newSyslog(), "<34>Oct 11 22:14:15 host app[7]: a message of usual length, more or less"},
		{"syslog5424", newSyslog(), "<34>1 2003-10-11T22:14:15.003Z host app 7 - - a message of usual length, more or less"},
	} {
		b.Run("format="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			l := NewLine(c.decoder, time.Unix(0, 0), "127.0.0.1:1")
			var dst []byte
			for b.Loop() {
				dst, _ = l.Append(dst[:0], []byte(c.frame))
			}
			b.SetBytes(int64(len(c.frame)))
		})
	}
}
