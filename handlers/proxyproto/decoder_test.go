package proxyproto_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/proxyproto"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

var everybody = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// app notes what reaches it, in order, and does at the header what the test says.
type app struct {
	header   *proxyproto.Header
	got      []string
	bytes    string
	complete string // bytes at the last ChannelReadComplete
	onHeader func(ctx *pipeline.Context)
}

func (a *app) ChannelActive(*pipeline.Context) error {
	a.got = append(a.got, "active")
	return nil
}

func (a *app) ChannelEvent(ctx *pipeline.Context, event any) error {
	a.header = event.(*proxyproto.Header)
	a.got = append(a.got, "header")
	if a.onHeader != nil {
		a.onHeader(ctx)
	}
	return nil
}

func (a *app) ChannelRead(_ *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf).Bytes()
	a.got = append(a.got, string(b))
	a.bytes += string(b)
	return nil
}

func (a *app) ChannelReadComplete(ctx *pipeline.Context) error {
	a.complete = a.bytes
	return nil
}

func (a *app) ChannelReadClosed(ctx *pipeline.Context) error {
	a.got = append(a.got, "read closed")
	ctx.FireReadClosed()
	return nil
}

func (a *app) ChannelInactive(*pipeline.Context) error {
	a.got = append(a.got, "inactive")
	return nil
}

func decoder(t testing.TB, cfg proxyproto.DecoderConfig) *proxyproto.Decoder {
	if cfg.Trusted == nil {
		cfg.Trusted = everybody
	}
	d, err := proxyproto.NewDecoder(cfg)
	require.NoError(t, err)
	return d
}

func open(t testing.TB, cfg proxyproto.DecoderConfig) (*pipelinetest.Channel, *app) {
	a := &app{}
	return pipelinetest.New(t, pipelinetest.Named("proxy", decoder(t, cfg)), pipelinetest.Named("app", a)), a
}

func TestWhatComesBehindTheHeaderFollowsTheEvent(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{})
	ch.WriteInbound(line4[:10])
	ch.WriteInbound(line4[10:]+"hel", "lo")
	ch.PeerClose()
	assert.Equal(t, []string{"active", "header", "hel", "lo", "read closed", "inactive"}, a.got)
}

func TestAPauseAtTheHeaderHoldsTheRestBack(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{})
	a.onHeader = func(ctx *pipeline.Context) { ctx.Pause() }
	ch.WriteInbound(line4+"one", "two")
	ch.PeerClose()
	assert.Equal(t, []string{"active", "header"}, a.got)
	ch.Do(ch.Context("app").Resume)
	assert.Equal(t, []string{"active", "header", "one", "two", "read closed", "inactive"}, a.got)
	assert.Nil(t, ch.Pipeline().Get("proxy"))
}

func TestAHandlerMayTakeItOutAtTheHeader(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{})
	a.onHeader = func(ctx *pipeline.Context) {
		_, err := ctx.Pipeline().Remove("proxy")
		assert.NoError(t, err)
	}
	ch.WriteInbound(line4 + "rest")
	assert.Equal(t, []string{"active", "header", "rest"}, a.got)
}

func TestAHandlerMayAbortAtTheHeader(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{})
	a.onHeader = func(ctx *pipeline.Context) { ctx.Abort(errTest) }
	ch.WriteInbound(line4 + "rest")
	assert.Equal(t, []string{"active", "header", "inactive"}, a.got)
}

func TestTakenOutBeforeTheHeaderItPassesWhatItHolds(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{})
	ch.WriteInbound("PROXY T")
	ch.Do(func() {
		_, err := ch.Pipeline().Remove("proxy")
		assert.NoError(t, err)
	})
	assert.Equal(t, []string{"active", "PROXY T"}, a.got)
	ch.Advance(time.Hour)
	assert.True(t, ch.Open(), "its timer is stopped")
}

func TestAHeaderThatDoesNotComeInTimeAborts(t *testing.T) {
	ch, _ := open(t, proxyproto.DecoderConfig{})
	for _, c := range line4[:40] { // a byte now and then does not help
		ch.Advance(proxyproto.DefaultTimeout / 41)
		ch.WriteInbound(string(c))
	}
	assert.True(t, ch.Open())
	ch.Advance(proxyproto.DefaultTimeout / 20)
	assert.True(t, ch.Closed())
	assert.ErrorIs(t, ch.TakeError(), proxyproto.ErrTimeout)

	ch, a := open(t, proxyproto.DecoderConfig{Timeout: time.Second})
	ch.Advance(999 * time.Millisecond)
	ch.WriteInbound(line4)
	ch.Advance(time.Hour)
	assert.True(t, ch.Open())
	assert.NotNil(t, a.header)
}

func TestWhileReadingIsPausedTheTimeIsNotThePeers(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{Timeout: time.Second})
	ch.Do(ch.Context("app").Pause)
	ch.WriteInbound(line4)
	ch.Advance(10 * time.Second)
	assert.True(t, ch.Open())
	ch.Do(ch.Context("app").Resume)
	assert.NotNil(t, a.header)
}

func TestAPeerThatIsNotTrustedIsNeverHeardOf(t *testing.T) {
	a := &app{}
	d := decoder(t, proxyproto.DecoderConfig{Trusted: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}})
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Inactive: true}, d, a)
	ch.WriteInbound(line4)
	ch.Activate()
	assert.True(t, ch.Closed())
	assert.ErrorIs(t, ch.Cause(), proxyproto.ErrUntrusted)
	assert.Empty(t, a.got)
}

func TestAnUntrustedPeersHeaderIsItsOwnBytes(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{
		Trusted: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, PassUntrusted: true,
	})
	ch.WriteInbound(line4)
	assert.Equal(t, []string{"active", line4}, a.got)
	assert.Nil(t, ch.Pipeline().Get("proxy"))
}

func TestWhoIsTrusted(t *testing.T) {
	cfg := proxyproto.DecoderConfig{Trusted: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("fe80::/10"),
	}}
	for peer, trusted := range map[string]bool{
		"192.0.2.9:1": true, "[::ffff:192.0.2.9]:1": true, "192.0.3.1:1": false,
		"[fe80::1%lo]:1": true, "[::1]:1": false,
	} {
		ch := pipelinetest.NewConfig(t, pipelinetest.Config{RemoteAddr: netip.MustParseAddrPort(peer)}, decoder(t, cfg))
		assert.Equal(t, trusted, ch.Open(), peer)
	}
}

func TestOptionalHeaders(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{Optional: true})
	ch.WriteInbound("PRO")
	ch.WriteInbound("FIT\n")
	assert.Equal(t, "PROFIT\n", a.bytes)
	assert.Nil(t, a.header)

	ch, a = open(t, proxyproto.DecoderConfig{Optional: true})
	ch.WriteInbound("PRO")
	ch.PeerClose()
	assert.Equal(t, []string{"active", "PRO", "read closed", "inactive"}, a.got)

	ch, a = open(t, proxyproto.DecoderConfig{Optional: true})
	ch.WriteInbound(line4 + "x")
	assert.Equal(t, []string{"active", "header", "x"}, a.got)
}

func TestOptionalServesPeersThatAreSilentOrBrief(t *testing.T) {
	limit := proxyproto.DefaultTimeout
	ch, a := open(t, proxyproto.DecoderConfig{Optional: true})
	ch.Advance(time.Hour)
	require.True(t, ch.Open(), "silent")
	ch.WriteInbound("P")
	ch.Advance(limit - 1)
	ch.WriteInbound("ROXY")
	assert.Empty(t, a.bytes)
	ch.Advance(1)
	assert.Equal(t, []string{"active", "PROXY"}, a.got, "a client that waits behind its first bytes")
	assert.Equal(t, "PROXY", a.complete)
	assert.Nil(t, ch.Pipeline().Get("proxy"))
	ch.WriteInbound(" TCP4")
	assert.Equal(t, "PROXY TCP4", a.bytes)

	ch, a = open(t, proxyproto.DecoderConfig{Optional: true})
	ch.Advance(time.Hour)
	ch.WriteInbound(line4[:1])
	ch.Advance(limit - 1)
	ch.WriteInbound(line4[1:])
	assert.NotNil(t, a.header, "a header that comes late and in pieces")
	ch.Advance(time.Hour)
	assert.True(t, ch.Open())

	ch, a = open(t, proxyproto.DecoderConfig{Optional: true})
	ch.WriteInbound("PROXY ")
	ch.Advance(limit - 1)
	assert.True(t, ch.Open())
	ch.Advance(1)
	assert.ErrorIs(t, ch.TakeError(), proxyproto.ErrTimeout, "a header that does not come to its end")
	assert.Empty(t, a.bytes)

	ch, a = open(t, proxyproto.DecoderConfig{Optional: true})
	ch.WriteInbound("PROXY ")
	ch.PeerClose()
	assert.ErrorIs(t, ch.TakeError(), proxyproto.ErrTruncated)
	assert.Empty(t, a.bytes)
}

func TestTheEndOfTheStreamBeforeTheHeader(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{})
	ch.PeerClose()
	assert.Equal(t, []string{"active", "read closed", "inactive"}, a.got, "a health check")

	ch, _ = open(t, proxyproto.DecoderConfig{})
	ch.WriteInbound("PROXY ")
	ch.PeerClose()
	assert.True(t, ch.Closed())
	assert.ErrorIs(t, ch.TakeError(), proxyproto.ErrTruncated)
}

func TestTheBodyMayHaveMaxBytes(t *testing.T) {
	for _, size := range []int{99, 100, 101} {
		h := header4(2, proxyproto.TLV{Type: proxyproto.TypeNoop, Value: make([]byte, size-12-3)})
		wire, err := h.AppendTo(nil)
		require.NoError(t, err)
		ch, a := open(t, proxyproto.DecoderConfig{MaxBytes: 100})
		if size > 100 {
			ch.WriteInbound(wire[:16]) // told by the length alone
			assert.ErrorIs(t, ch.TakeError(), proxyproto.ErrTooLong)
			continue
		}
		ch.WriteInboundSplit(wire, 1)
		assert.NotNil(t, a.header, size)
	}
}

func TestAddedToAnActiveChannel(t *testing.T) {
	a := &app{}
	ch := pipelinetest.New(t, a)
	ch.Do(func() { assert.NoError(t, ch.Pipeline().AddFirst("proxy", decoder(t, proxyproto.DecoderConfig{}))) })
	ch.WriteInbound(line4 + "x")
	assert.Equal(t, []string{"active", "header", "x"}, a.got)

	e, err := proxyproto.NewEncoder(header4(1))
	require.NoError(t, err)
	ch.Do(func() { assert.NoError(t, ch.Pipeline().AddFirst("out", e)) })
	assert.Equal(t, line4, ch.OutboundString())
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	for _, cfg := range []proxyproto.DecoderConfig{
		{},
		{Trusted: []netip.Prefix{{}}},
		{Trusted: []netip.Prefix{netip.MustParsePrefix("::ffff:1.2.3.4/128")}},
		{TrustUnix: true, MaxBytes: -1},
		{TrustUnix: true, MaxBytes: 65536},
		{TrustUnix: true, Timeout: -1},
	} {
		_, err := proxyproto.NewDecoder(cfg)
		assert.ErrorIs(t, err, proxyproto.ErrConfig)
	}
}

// FuzzDecoder: any split of the input gives what Parse makes of the whole.
func FuzzDecoder(f *testing.F) {
	for _, c := range nettyDecodes {
		f.Add([]byte(c.in+"rest"), []byte{1})
		f.Add([]byte(c.in), []byte{13, 3})
	}
	wire, _ := header4(2, proxyproto.TLV{Type: proxyproto.TypeCRC32C}).AppendTo(nil)
	f.Add(wire, []byte{7})
	f.Fuzz(func(t *testing.T, in, splits []byte) {
		want, n, err := proxyproto.Parse(in, 0)
		differential(t, in, want, n, err)
		ch, a := open(t, proxyproto.DecoderConfig{})
		for turn, rest := 0, in; len(rest) > 0; turn++ {
			size := len(rest)
			if len(splits) > 0 {
				size = min(size, 1+int(splits[turn%len(splits)]))
			}
			ch.WriteInbound(rest[:size])
			rest = rest[size:]
		}
		got := ch.TakeError()
		switch {
		case err == proxyproto.ErrShort:
			if !ch.Open() || a.bytes != "" || a.header != nil {
				t.Fatalf("%q: open %v, %q", in, ch.Open(), a.got)
			}
		case err != nil:
			if got == nil || got.Error() != err.Error() || a.bytes != "" {
				// A bad beginning is noticed before the whole is there, then with fewer bytes in the message.
				if got == nil || a.bytes != "" {
					t.Fatalf("%q: %v instead of %v, %q", in, got, err, a.got)
				}
			}
		default:
			assert.Equal(t, want, a.header)
			if a.bytes != string(in[n:]) || strings.Count(strings.Join(a.got, ","), "header") < 1 {
				t.Fatalf("%q: %q", in, a.got)
			}
			again, err := want.AppendTo(nil)
			if err != nil {
				t.Fatalf("%+v: %v", want, err)
			}
			back, _, err := proxyproto.Parse(again, 65535)
			assert.NoError(t, err)
			assert.Equal(t, want, back)
		}
	})
}

// torrent delivers more and more, whether reading is paused or not.
type torrent struct{}

func (torrent) ChannelRead(ctx *pipeline.Context, msg any) error {
	for range 100 {
		ctx.FireRead(msg)
	}
	return nil
}

func TestWhatIsHeldWhileReadingIsPausedIsBounded(t *testing.T) {
	a := &app{onHeader: func(ctx *pipeline.Context) { ctx.Pause() }}
	d := decoder(t, proxyproto.DecoderConfig{})
	ch := pipelinetest.New(t, torrent{}, pipelinetest.Named("proxy", d), pipelinetest.Named("app", a))
	ch.WriteInbound(line4 + strings.Repeat("x", 16<<10))
	assert.True(t, ch.Closed())
	assert.ErrorIs(t, ch.TakeError(), proxyproto.ErrOverrun)
	assert.Equal(t, []string{"active", "header", "inactive"}, a.got)
}

func TestWhatArrivesWhileTheHeaderIsHandledComesBehind(t *testing.T) {
	ch, a := open(t, proxyproto.DecoderConfig{})
	a.onHeader = func(ctx *pipeline.Context) {
		b := buffer.New(4)
		b.AppendString("late")
		assert.NoError(t, ch.Context("proxy").Handler().(*proxyproto.Decoder).ChannelRead(ch.Context("proxy"), b))
		b.Release()
	}
	ch.WriteInbound(line4 + "early ")
	assert.Equal(t, "early late", a.bytes)
}

func TestAPanicAtTheHeaderLeaksNothing(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		ch, a := open(t, proxyproto.DecoderConfig{})
		a.onHeader = func(ctx *pipeline.Context) {
			if leaves {
				_, err := ctx.Pipeline().Remove("proxy")
				assert.NoError(t, err)
			}
			panic(errTest)
		}
		ch.WriteInbound(line4 + "rest")
		assert.ErrorIs(t, ch.TakeError(), channel.ErrPanic)
		assert.Equal(t, "", a.bytes)
		ch.Finish()
	}
}
