package decode

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What other collectors were given and lost, or understood wrongly. The rows name the reports.
func TestWhatOthersLostIsKept(t *testing.T) {
	const legacy = `"format":"syslog3164","facility":0,"severity":6,"time":"2026-09-01T00:00:00Z","host":"box","app":"logger",`
	for _, c := range []struct {
		id      string
		decoder Decoder
		frame   string
		ok      bool
		want    string // part of the line
	}{
		{
			"report-01 go-syslog#37", newSyslog(), "<6>Sep  1 00:00:00 box logger: hi!\x00tail", true,
			legacy + `"message":"hi!\u0000tail"`,
		},
		{
			"report-01 colours", newSyslog(), "<6>Sep  1 00:00:00 box logger: \x1b[31mred\x1b[0m", true,
			legacy + `"message":"\u001b[31mred\u001b[0m"`,
		},
		{"report-01 DEL", newSyslog(), "<6>Sep  1 00:00:00 box logger: a\x7fb", true, legacy + `"message":"a\u007fb"`},
		{
			"report-02 rsyslog#1165", newSyslog(), "<6>Sep  1 00:00:00 box logger: hi!\n\tat com.example.A(A.java:1)\n", true,
			legacy + `"message":"hi!\n\tat com.example.A(A.java:1)\n"`,
		},
		{
			"report-06 stanza#218", newSyslog(), "<167>2020-11-25T19:01:51.316Z esxi-0 Rhttpproxy: verbose [Originator@6876] x",
			true,
			`"time":"2020-11-25T19:01:51.316Z","host":"esxi-0","app":"Rhttpproxy","message":"verbose [Originator@6876] x"`,
		},
		{
			"report-07 wazuh#185", newSyslog(), "<164>Sep 14 2018 09:33:47 FW-1 : %ASA-4-106023: Deny", true,
			`"time":"2018-09-14T09:33:47Z","host":"FW-1","message":": %ASA-4-106023: Deny"`,
		},
		{
			"report-07 syslog-ng#4593", newSyslog(), "<164>Aug 08 16:58:18 DEVICE1 : %FTD-4-106023: t", true,
			`"time":"2026-08-08T16:58:18Z","host":"DEVICE1","message":": %FTD-4-106023: t"`,
		},
		{
			"report-08 vector#20886", newSyslog(), `<185>date=2024-07-19 time=11:05:36 devname="FG1"`, false,
			`"raw":"<185>date=2024-07-19 time=11:05:36 devname=\"FG1\""`,
		},
		{
			"report-08 splunk#1669", newSyslog(), "<14>Switch 0200c0ffee01_USW-1.8.6: NETDEV: Setup", false,
			`"raw":"<14>Switch 0200c0ffee01_USW-1.8.6: NETDEV: Setup"`,
		},
		{
			"report-09 vrl#68", newSyslog(),
			`<165>1 2003-10-11T22:14:15.003Z h a 1 ID [origin ip="192.0.2.1" ip="192.0.2.129"] m`, true,
			`"message":"m","data":{"origin":{"ip":["192.0.2.1","192.0.2.129"]}}`,
		},
		{"report-10 rsyslog#4765", newSyslog(), "<13>Dec 31 23:59:59 h app: x", true, `"time":"2025-12-31T23:59:59Z"`},
		{"report-11 go-syslog#21", newSyslog(), "<165>1 2003-10-11T22:14:15.003Z h a 1 ID - caf\xe9", false, `"bytes":"`},
		{
			"report-12 rsyslog#284", newSyslog(), "<165>1 2003-10-11T22:14:15.003Z h a 1 ID - \ufeff{\"a\":1}", true,
			`"message":"` + "\ufeff" + `{\"a\":1}"`,
		},
		{
			"report-13 carbon-c-relay#311",
			Graphite{},
			"a.b;h=x;h=y 1 2", false,
			`"error":"decode: malformed graphite: a tag twice","raw":"a.b;h=x;h=y 1 2"`,
		},
		{"report-14 telegraf#354", Statsd{}, "k:581632|ms:593920|ms", false, `"raw":"k:581632|ms:593920|ms"`},
		{"report-14 statsd_exporter#558", Statsd{}, "m:21:43.2:1657|d|#all", false, `"raw":"m:21:43.2:1657|d|#all"`},
		{"report-15 carbon#58", Graphite{}, "m 151 1708082558.254", true, `"path":"m","value":151,"time":1708082558.254`},
		{"report-15 carbon-c-relay#7", Graphite{}, "a\t1\t1708082558", true, `"path":"a","value":1,"time":1708082558`},
		{"report-15 blank", Graphite{}, "a b c 1", false, `"raw":"a b c 1"`},
		{"report-15 unit", Graphite{}, "a 9% 1", false, `"raw":"a 9% 1"`},
		{"report-15 now", Graphite{}, "a 1 -1", true, `"value":1,"time":-1`},
		{
			"Cisco: a counter", newSyslog(), "<189>643: Jan  8 19:46:03.295: %LINEPROTO-5-UPDOWN: Line protocol", true,
			`"time":"2026-01-08T19:46:03.295Z","prefix":"643:","app":"%LINEPROTO-5-UPDOWN","message":"Line protocol"`,
		},
		{
			"Cisco: a counter and a sequence", newSyslog(), "<189>105: 000104: *Mar 12 07:12:10: %SYS-5-CONFIG_I: Configured",
			true,
			`"time":"2026-03-12T07:12:10Z","prefix":"105: 000104: *","app":"%SYS-5-CONFIG_I","message":"Configured"`,
		},
		{
			"Cisco: a host", newSyslog(), "<189>269614: hostname1: Apr 11 10:02:08: %LINEPROTO-5-UPDOWN: L", true,
			`"time":"2026-04-11T10:02:08Z","prefix":"269614: hostname1:","app":"%LINEPROTO-5-UPDOWN","message":"L"`,
		},
		{
			"Cisco: no counter", newSyslog(), "<189>: Apr 11 10:02:08: %SYS-5-X: L", true,
			`"prefix":":","app":"%SYS-5-X","message":"L"`,
		},
		{
			"a fraction of a second", newSyslog(), "<34>Oct  1 22:14:15.123 host su: m", true,
			`"time":"2026-10-01T22:14:15.123Z","host":"host"`,
		},
		{"not a tag", newSyslog(), "<13>Sep  1 00:00:00 box app[1][2]: x", true, `"host":"box","message":"app[1][2]: x"`},
		{"an open bracket", newSyslog(), "<13>Sep  1 00:00:00 box app[12 x", true, `"host":"box","message":"app[12 x"`},
		{"an address", newSyslog(), "<13>Sep  1 00:00:00 fe80::1 app: x", true, `"host":"fe80::1","app":"app","message":"x"`},
		{"no host", newSyslog(), "<13>Sep  1 00:00:00 app[7]: x", true, `Z","app":"app","process":"7","message":"x"`},
		{"version 2", newSyslog(), "<13>2 - - - - - - x", false, `"raw":"<13>2 - - - - - - x"`},
		{"a section twice", Statsd{}, "a:1|c|@0.5|@0.1", false, `"raw":"a:1|c|@0.5|@0.1"`},
		{"tags twice", Statsd{}, "a:1|c|#a|#b", false, `"raw":"a:1|c|#a|#b"`},
		{"two others", Statsd{}, "a:1|c|c:id|T123", true, `"more":["c:id","T123"]`},
		{"a name twice", JSON{}, `{"a":1,"\u0061":2}`, false, `"raw":"{\"a\":1,\"\\u0061\":2}"`},
		{"half a pair", JSON{}, `"\ud800"`, false, `"raw":"\"\\ud800\""`},
		{"C1", JSON{}, "\"\u009b\"", true, `"body":"\u009b"`},
		{"direction", Graphite{}, "a\u202eb\u2066\u061c 1 2", true, `"path":"a\u202eb\u2066\u061c"`},
		{"kept, too", Graphite{}, "\u0080\x7f", false, `"raw":"\u0080\u007f"`},
	} {
		got, ok := line(c.decoder, c.frame)
		assert.Equal(t, c.ok, ok, "%s: %s", c.id, got)
		assert.Contains(t, got, c.want, c.id)
	}
}

func TestControlsStayWhereThatIsWanted(t *testing.T) {
	l := NewLine(Graphite{}, time.Unix(0, 0), "c")
	l.Unescaped = true
	got, _ := l.Append(nil, []byte("\u202e 1 2"))
	assert.Contains(t, string(got), `"path":"`+"\u202e"+`"`)
}

// A time without a year is not in the future, up to a clock that is a week fast, also in a process that was started in
// another year.
func TestATimeWithoutAYearIsTheLastThatIsNotInTheFuture(t *testing.T) {
	for now, want := range map[string]string{
		"2026-11-30T00:00:00Z": "2025-12-31T23:59:59Z", "2027-01-01T00:00:01Z": "2026-12-31T23:59:59Z",
		"2026-12-24T23:59:58Z": "2025-12-31T23:59:59Z", "2026-12-24T23:59:59Z": "2026-12-31T23:59:59Z",
		"2026-12-25T00:00:00Z": "2026-12-31T23:59:59Z",
	} {
		at, err := time.Parse(time.RFC3339, now)
		require.NoError(t, err)
		got, _ := line(NewSyslog(nil, func() time.Time { return at }), "<13>Dec 31 23:59:59 h app: x")
		assert.Contains(t, got, `"time":"`+want+`"`, now)
	}
	for now, want := range map[int]int{2026: 2024, 2027: 2024, 2028: 2028, 2029: 2028, 1903: 1896, 2103: 2096} {
		at := time.Date(now, 3, 1, 0, 0, 0, 0, time.UTC)
		got, _ := line(NewSyslog(nil, func() time.Time { return at }), "<13>Feb 29 00:00:00 h app: x")
		assert.Contains(t, got, fmt.Sprintf(`"time":"%d-02-29T00:00:00Z"`, want), now)
	}
}

// The text of a stored record has the text that was sent, and what stands before it is in the other members.
func FuzzSyslogKeepsTheText(f *testing.F) {
	for _, seed := range []string{
		"", "m", "app: m", "app[7]: m\n", "host app[7]:", "h  m ", "\x00\x1b\x7f", "a[1][2]: x",
		"1: Jan  8 19:46:03.2: %A: x", ": : x", "é: x", "[", "[]: ",
	} {
		f.Add(seed)
	}
	heads := []string{
		"<13>", "<13>Sep  1 00:00:00", "<13>Sep  1 00:00:00 box ", "<13>Sep  1 00:00:00 box app[7]: ",
		"<13>2026-01-02T03:04:05+01:00 ", "<13>12: ",
		"<165>1 - - - - - - ",
	}
	lead := regexp.MustCompile(`(?i)^<\d+> *([0-9T:.Z+-]{20,}|[A-Z][a-z]{2} *\d+( +\d{4})? +[\d:.,]+?) *$`)
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		for _, head := range heads {
			got, ok := line(newSyslog(), head+text)
			var m struct{ Raw, Prefix, Host, App, Process, Message string }
			require.NoError(t, json.Unmarshal([]byte("{"+got+"}"), &m))
			if !ok {
				require.Equal(t, head+text, m.Raw)
				continue
			}
			before, found := strings.CutSuffix(head+text, m.Message)
			require.True(t, found, "%q", got)
			if strings.Contains(got, `"syslog5424"`) {
				require.Equal(t, strings.TrimRight(head, " "), strings.TrimRight(before, " "))
				continue
			}
			for _, part := range []string{m.Process, m.App, m.Host} { // from the end
				if part != "" {
					at := strings.LastIndex(before, part)
					require.NotEqual(t, -1, at, "%q", got)
					require.Empty(t, strings.Trim(before[at+len(part):], " []:"), "%q", got)
					before = before[:at]
				}
			}
			before = strings.Replace(before, m.Prefix, "", 1)
			require.Regexp(t, lead, strings.TrimRight(before, ":[ "), "%q", got)
		}
	})
}

// Structured data with any names and values comes back, each value of each name, in order.
func TestStructuredDataIsKept(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	escape := strings.NewReplacer(`"`, `\"`, `\`, `\\`, `]`, `\]`)
	for range 2000 {
		frame, want := "<165>1 - - - - - ", map[string]map[string]any{}
		for e := range 1 + random.IntN(3) {
			id, params := fmt.Sprintf("e%d@1", e), map[string]any{}
			frame += "[" + id
			for range random.IntN(5) {
				name, value := string(rune('a'+random.IntN(3))), ""
				for range random.IntN(4) {
					value += string([]rune("x \"\\]=[é\n")[random.IntN(9)])
				}
				frame += fmt.Sprintf(` %s="%s"`, name, escape.Replace(value))
				switch before := params[name].(type) {
				case nil:
					params[name] = value
				case string:
					params[name] = []any{before, value}
				case []any:
					params[name] = append(slices.Clone(before), value)
				}
			}
			want[id] = params
			frame += "]"
		}
		got, ok := line(newSyslog(), frame+" m")
		require.True(t, ok, "%s: %s", frame, got)
		var m struct{ Data map[string]map[string]any }
		require.NoError(t, json.Unmarshal([]byte("{"+got+"}"), &m))
		require.Equal(t, want, m.Data, frame)
	}
}
