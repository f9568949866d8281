package proxyproto_test

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/proxyproto"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// nettyIDs are the cases that this package is responsible for.
const nettyIDs = "netty-096 netty-097 netty-098 netty-099 netty-100 netty-107 netty-108 netty-109 netty-110 " +
	"netty-111 netty-113 " +
	"netty-115 netty-117 netty-118 netty-123 netty-124 netty-128 netty-129 netty-131 netty-132 netty-134 netty-135"

// nettyDeviations says what is otherwise than the case says, and why.
var nettyDeviations = map[string]string{
	"netty-109": "a header that is too long fails at once; waiting for its end only helps a peer that has none",
}

const (
	sig2    = "0d0a0d0a000d0a515549540a"
	line4   = "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"
	client4 = "192.168.0.1:56324 192.168.0.11:443"
)

func unhex(s string) string {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func path108(p string) string { return p + strings.Repeat("\x00", 108-len(p)) }

// nettyDecodes: where want is empty, the channel closes with an error.
var nettyDecodes = []struct {
	id, in   string
	maxBytes int
	want     string // protocol, source, destination
}{
	{"netty-096", "PROXY TCP6 2001:0db8:85a3:0000:0000:8a2e:0370:7334 1050:0:0:0:5:600:300c:326b 56324 443\r\n", 0, "TCP6 [2001:db8:85a3::8a2e:370:7334]:56324 [1050::5:600:300c:326b]:443"},
	{"netty-097", "PROXY UNKNOWN 192.168.0.1 192.168.0.11 56324 443\r\n", 0, "UNKNOWN invalid AddrPort invalid AddrPort"},
	{"netty-098", "PROXY UDP4 192.168.0.1 192.168.0.11 56324 443\r\n", 0, ""},
	{"netty-099", "PROXY TCP4 192.168.0.1 192.168.0.11 80000 443\r\n", 0, ""},
	{"netty-100", "PROXY TCP4 299.168.0.1 192.168.0.11 56324 443\r\n", 0, ""},
	{"netty-107", "PROXY TCP4 192.168.0.1 192.168.0.11 56324 " + strings.Repeat("0", 65) + "443\r\n", 0, ""},
	{"netty-108", "GET / HTTP/1.1\r\n", 0, ""},
	{"netty-110", "PROXY TCP4 192.168.0.1 192.168.0.11 56324 " + strings.Repeat("0", 66) + "443", 0, ""},
	{"netty-113", unhex(sig2 + "2112000cc0a80001c0a8000bdc0401bb"), 0, "UDP4 " + client4},
	{"netty-115", unhex(sig2+"213100d8") + path108("/var/run/src.sock") + path108("/var/run/dest.sock"), 0, "UNIX_STREAM /var/run/src.sock /var/run/dest.sock"},
	{"netty-117", unhex(sig2 + "2100000cc0a80001c0a8000bdc0401bb"), 0, "UNKNOWN invalid AddrPort invalid AddrPort"},
	{"netty-118", unhex(sig2 + "211100237f0000017f000001c9a607592000140500000000210005544c5376312200044c454146"), 0, "TCP4 127.0.0.1:51622 127.0.0.1:1881"},
	{"netty-123", unhex(sig2 + "3111000cc0a80001c0a8000bdc0401bb"), 0, ""},
	{"netty-124", unhex(sig2+"211100e8c0a80001c0a8000bdc0401bb") + strings.Repeat("\x00", 220), 216, ""},
}

var nettyEncodes = []struct {
	id, want string
	header   proxyproto.Header
}{
	{"netty-131", line4, *header4(1)},
	{"netty-132", unhex(sig2 + "2111000cc0a80001c0a8000bdc0401bb"), *header4(2)},
	{"netty-134", unhex(sig2+"21110030c0a80001c0a8000bdc0401bb") + "\x01\x00\x0bhello world\x02\x00\x13an arbitrary string", *header4(2, proxyproto.TLV{Type: 1, Value: []byte("hello world")}, proxyproto.TLV{Type: 2, Value: []byte("an arbitrary string")})},
}

func header4(version int, tlvs ...proxyproto.TLV) *proxyproto.Header {
	h := proxyproto.FromAddrs(version,
		netip.MustParseAddrPort("192.168.0.1:56324"), netip.MustParseAddrPort("192.168.0.11:443"))
	h.TLVs = tlvs
	return h
}

func summary(h *proxyproto.Header) string {
	if h.Protocol == proxyproto.UnixStream || h.Protocol == proxyproto.UnixDatagram {
		return h.Protocol.String() + " " + h.SourcePath + " " + h.DestinationPath
	}
	return h.Protocol.String() + " " + h.Source.String() + " " + h.Destination.String()
}

func TestNettyCasesAllRunOrDeviate(t *testing.T) {
	ran := map[string]bool{}
	run := func(id string, test func(t *testing.T)) {
		ran[id] = true
		t.Run(id, test)
	}
	for _, c := range nettyDecodes {
		run(c.id, func(t *testing.T) {
			ch, a := open(t, proxyproto.DecoderConfig{MaxBytes: c.maxBytes})
			ch.WriteInbound(c.in)
			if c.want == "" {
				assert.True(t, ch.Closed())
				require.Error(t, ch.TakeError())
				assert.Nil(t, a.header)
				return
			}
			require.NotNil(t, a.header)
			assert.Equal(t, c.want, summary(a.header))
			assert.Nil(t, ch.Pipeline().Get("proxy"), "it takes itself out")
			if c.id == "netty-118" {
				s, ok, err := a.header.SSL()
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Equal(t, proxyproto.SSL{Client: 5, TLVs: []proxyproto.TLV{
					{Type: proxyproto.TypeSSLVersion, Value: []byte("TLSv1")}, {Type: proxyproto.TypeSSLCN, Value: []byte("LEAF")},
				}}, s)
			}
		})
	}
	run("netty-111", func(t *testing.T) {
		ch, a := open(t, proxyproto.DecoderConfig{})
		ch.WriteInbound("PROXY TCP4 192.168.0.1 192.168.0.11 56324")
		assert.Nil(t, a.header)
		assert.True(t, ch.Open())
	})
	run("netty-128", func(t *testing.T) {
		_, err := proxyproto.Detect([]byte("Invalid header"))
		assert.ErrorIs(t, err, proxyproto.ErrNoHeader)
	})
	run("netty-129", func(t *testing.T) {
		v, err := proxyproto.Detect([]byte(unhex(sig2)))
		require.NoError(t, err)
		assert.Equal(t, 2, v)
	})
	for _, c := range nettyEncodes {
		run(c.id, func(t *testing.T) {
			e, err := proxyproto.NewEncoder(&c.header)
			require.NoError(t, err)
			ch := pipelinetest.New(t, pipelinetest.Named("proxy", e), greeter{})
			assert.Equal(t, c.want+"hello", ch.OutboundString())
			assert.Nil(t, ch.Pipeline().Get("proxy"), "it takes itself out")
		})
	}
	run("netty-135", func(t *testing.T) { // such an address cannot be said; none at all can
		_, err := netip.ParseAddr("192.168.0.1234")
		require.Error(t, err)
		_, err = proxyproto.NewEncoder(&proxyproto.Header{Version: 1, Protocol: proxyproto.TCP4})
		assert.ErrorIs(t, err, proxyproto.ErrEncode)
	})
	for _, id := range strings.Fields(nettyIDs) {
		_, deviates := nettyDeviations[id]
		assert.True(t, ran[id] != deviates, "%s must run or stand in nettyDeviations", id)
		delete(ran, id)
	}
	assert.Empty(t, ran, "cases that are not listed")
}

// greeter writes as soon as the channel is active.
type greeter struct{}

func (greeter) ChannelActive(ctx *pipeline.Context) error { return ctx.Write("hello") }

func TestVersion1Rules(t *testing.T) {
	long := "PROXY UNKNOWN " + strings.Repeat("f", 107-16)
	for in, want := range map[string]error{
		"PROXY UNKNOWN\r\n":                      nil,
		"PROXY UNKNOWN anything at all\r\n":      nil,
		long + "\r\n":                            nil,
		long + "f\r\n":                           proxyproto.ErrTooLong,
		long + "ff":                              proxyproto.ErrTooLong,
		long + "f":                               proxyproto.ErrShort,
		long[:105] + "\r":                        proxyproto.ErrShort,
		"PROXY TCP4 1.2.3.4 5.6.7.8 0 65535\r\n": nil,
		"PROXY TCP4 1.2.3.4 5.6.7.8 0 65536\r\n": proxyproto.ErrBadHeader,
		"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n":    proxyproto.ErrBadHeader,
		"PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n":    proxyproto.ErrBadHeader,
		"PROXY TCP4 1.2.3.4 5.6.7.8  2\r\n":      proxyproto.ErrBadHeader,
		"PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n":    proxyproto.ErrBadHeader,
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n":    proxyproto.ErrBadHeader,
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n":       proxyproto.ErrBadHeader,
		"PROXY TCP4 1.2.3.4\r5.6.7.8 1 2":        proxyproto.ErrBadHeader,
		"PROXY TCP4 01.2.3.4 5.6.7.8 1 2\r\n":    proxyproto.ErrBadHeader,
		"PROXY TCP4 ::1 ::1 1 2\r\n":             proxyproto.ErrBadHeader,
		"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n":     proxyproto.ErrBadHeader,
		"PROXY TCP6 ::1%eth0 ::1 1 2\r\n":        proxyproto.ErrBadHeader,
		"PROXY TCP6 ::ffff:1.2.3.4 ::1 1 2\r\n":  nil,
		"PROXY TCP4\r\n":                         proxyproto.ErrBadHeader,
		"PROXY \r\n":                             proxyproto.ErrBadHeader,
		"PROXY\r\n":                              proxyproto.ErrNoHeader,
		"PROXX":                                  proxyproto.ErrNoHeader,
		"PROX":                                   proxyproto.ErrShort,
		"\r\n\r\n\x00\r\nQUIT":                   proxyproto.ErrShort,
		"\r\n\r\n\x01":                           proxyproto.ErrNoHeader,
		"":                                       proxyproto.ErrShort,
	} {
		h, n, err := proxyproto.Parse([]byte(in), 0)
		if want == nil {
			assert.NoError(t, err, "%q", in)
			assert.Equal(t, len(in), n, "%q", in)
			assert.NotNil(t, h, "%q", in)
			continue
		}
		assert.ErrorIs(t, err, want, "%q", in)
		assert.Nil(t, h, "%q", in)
	}
}

func TestVersion2Rules(t *testing.T) {
	const addrs = "c0a80001c0a8000bdc0401bb"
	for in, want := range map[string]error{
		"2111000c" + addrs:                    nil,
		"2111000b" + addrs:                    proxyproto.ErrBadHeader, // too short for the addresses
		"2011000c" + addrs:                    nil,                     // LOCAL
		"20110000":                            nil,                     // LOCAL without what its family promises
		"20100000":                            nil,                     // LOCAL of families that there are not
		"20010000":                            nil,
		"20ff0004" + "50494e47":               nil,
		"21100004" + "50494e47":               proxyproto.ErrBadHeader,
		"2211000c" + addrs:                    proxyproto.ErrBadHeader, // no such command
		"2113000c" + addrs:                    proxyproto.ErrBadHeader, // no such transport
		"2141000c" + addrs:                    proxyproto.ErrBadHeader, // no such family
		"21110010" + addrs + "04000101":       nil,                     // one TLV
		"2111000f" + addrs + "040001":         proxyproto.ErrBadHeader, // whose value is missing
		"2111000e" + addrs + "0400":           proxyproto.ErrBadHeader,
		"21110013" + addrs + "03000400000000": proxyproto.ErrChecksum,
		"21110012" + addrs + "030003000000":   proxyproto.ErrBadHeader,
		"2111000c" + addrs[:22]:               proxyproto.ErrShort,
		"2111":                                proxyproto.ErrShort,
		"21111001":                            proxyproto.ErrTooLong,
		"21111000":                            proxyproto.ErrShort, // DefaultMaxBytes
		"2111ffff":                            proxyproto.ErrTooLong,
	} {
		_, _, err := proxyproto.Parse([]byte(unhex(sig2+in)), 0)
		if want == nil {
			assert.NoError(t, err, in)
			continue
		}
		assert.ErrorIs(t, err, want, in)
	}
}

func TestTheChecksumCoversEveryByte(t *testing.T) {
	h := header4(2, proxyproto.TLV{Type: proxyproto.TypeAuthority, Value: []byte("a.example")},
		proxyproto.TLV{Type: proxyproto.TypeCRC32C}, proxyproto.TLV{Type: proxyproto.TypeNoop, Value: []byte("....")})
	wire, err := h.AppendTo([]byte("before"))
	require.NoError(t, err)
	wire = wire[len("before"):]
	got, n, err := proxyproto.Parse(wire, 0)
	require.NoError(t, err)
	assert.Equal(t, len(wire), n)
	sum, ok := got.TLV(proxyproto.TypeCRC32C)
	assert.True(t, ok)
	assert.Len(t, sum, 4)
	for at := range wire {
		for bit := range 8 {
			broken := append([]byte(nil), wire...)
			broken[at] ^= 1 << bit
			h, _, err := proxyproto.Parse(broken, 0)
			if err == nil && !h.Local && h.Protocol != proxyproto.Unspecified {
				// A flip that makes the checksum another TLV takes the check away; no format can help that.
				_, still := h.TLV(proxyproto.TypeCRC32C)
				assert.False(t, still, "byte %d bit %d", at, bit)
			}
		}
	}
	twice := header4(2, proxyproto.TLV{Type: proxyproto.TypeCRC32C}, proxyproto.TLV{Type: proxyproto.TypeCRC32C})
	_, err = twice.AppendTo(nil)
	assert.ErrorIs(t, err, proxyproto.ErrEncode)
}

func TestWhatIsParsedHoldsNothingOfTheInput(t *testing.T) {
	wire, err := header4(2, proxyproto.TLV{Type: proxyproto.TypeALPN, Value: []byte("h2")}).AppendTo(nil)
	require.NoError(t, err)
	h, _, err := proxyproto.Parse(wire, 0)
	require.NoError(t, err)
	clear(wire)
	value, _ := h.TLV(proxyproto.TypeALPN)
	assert.Equal(t, "h2", string(value))
}

func TestWhatCannotBeEncoded(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("[::1]:5")
	noop := []proxyproto.TLV{{Type: proxyproto.TypeNoop}}
	for what, h := range map[string]proxyproto.Header{
		"version":        {},
		"UDP in 1":       {Version: 1, Protocol: proxyproto.UDP4, Source: v4, Destination: v4},
		"TLV in 1":       {Version: 1, Protocol: proxyproto.TCP4, Source: v4, Destination: v4, TLVs: noop},
		"TLV of LOCAL":   {Version: 2, Local: true, TLVs: noop},
		"family":         {Version: 2, Protocol: proxyproto.TCP4, Source: v4, Destination: v6},
		"family 6":       {Version: 2, Protocol: proxyproto.TCP6, Source: v4, Destination: v6},
		"zone":           {Version: 1, Protocol: proxyproto.TCP6, Source: netip.MustParseAddrPort("[fe80::1%lo]:1"), Destination: v6},
		"protocol":       {Version: 2, Protocol: 0x13, Source: v4, Destination: v4},
		"path":           {Version: 2, Protocol: proxyproto.UnixStream, SourcePath: strings.Repeat("x", 109)},
		"NUL in a path":  {Version: 2, Protocol: proxyproto.UnixStream, SourcePath: "a\x00b"},
		"too many bytes": {Version: 2, Protocol: proxyproto.TCP4, Source: v4, Destination: v4, TLVs: []proxyproto.TLV{{Value: make([]byte, 65535-12-2)}}},
	} {
		out, err := h.AppendTo([]byte("x"))
		assert.ErrorIs(t, err, proxyproto.ErrEncode, what)
		assert.Equal(t, "x", string(out), what)
	}
	h := proxyproto.Header{
		Version: 2, Protocol: proxyproto.TCP4, Source: v4, Destination: v4,
		TLVs: []proxyproto.TLV{{Value: make([]byte, 65535-12-3)}},
	}
	wire, err := h.AppendTo(nil)
	require.NoError(t, err)
	assert.Len(t, wire, 16+65535)
	_, _, err = proxyproto.Parse(wire, 65534)
	assert.ErrorIs(t, err, proxyproto.ErrTooLong)
	got, _, err := proxyproto.Parse(wire, 65535)
	require.NoError(t, err)
	assert.Equal(t, &h, got)
}

func TestFromAddrs(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"1.2.3.4:5", "6.7.8.9:10", "TCP4 1.2.3.4:5 6.7.8.9:10"},
		{"[::ffff:1.2.3.4]:5", "6.7.8.9:10", "TCP4 1.2.3.4:5 6.7.8.9:10"},
		{"[fe80::1%lo]:5", "6.7.8.9:10", "TCP6 [fe80::1]:5 [::ffff:6.7.8.9]:10"},
	} {
		h := proxyproto.FromAddrs(1, netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to))
		assert.Equal(t, c.want, summary(h))
		_, err := h.AppendTo(nil)
		assert.NoError(t, err)
	}
	wire, err := proxyproto.FromAddrs(1, netip.AddrPort{}, netip.AddrPort{}).AppendTo(nil)
	require.NoError(t, err)
	assert.Equal(t, "PROXY UNKNOWN\r\n", string(wire))
	wire, err = (&proxyproto.Header{Version: 2, Local: true}).AppendTo(nil)
	require.NoError(t, err)
	assert.Equal(t, unhex(sig2+"20000000"), string(wire))
}

var errTest = errors.New("test")
