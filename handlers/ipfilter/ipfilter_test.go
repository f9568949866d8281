package ipfilter_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/ipfilter"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

func set(t testing.TB, cfg ipfilter.Config) *ipfilter.Set {
	s, err := ipfilter.NewSet(cfg)
	require.NoError(t, err)
	return s
}

// nettyIDs are the cases that this package is responsible for.
var nettyIDs = []string{"netty-258", "netty-259", "netty-262", "netty-263", "netty-265", "netty-266"}

// nettyDeviations says what is otherwise than the case says, and why.
var nettyDeviations = map[string]string{}

var nettyCases = []struct {
	id, cidr, addr string
	match          bool
}{
	{"netty-258", "0.0.0.0/0", "91.114.240.43", true},
	{"netty-259", "0.0.0.0/0", "2001:db8:abcd:0::1", false},
	{"netty-262", "192.168.56.1/24", "192.168.57.1", false},
	{"netty-263", "91.114.240.1/23", "91.114.241.254", true},
	{"netty-265", "2001:db8:abcd::/52", "2001:db8:abcd:fff:ffff:ffff:ffff:ffff", true},
	{"netty-266", "2001:db8:abcd::/52", "2001:db8:abcd:1000::", false},
}

func TestNettyCasesAllRunOrDeviate(t *testing.T) {
	ran := map[string]bool{}
	for _, c := range nettyCases {
		t.Run(c.id, func(t *testing.T) {
			ran[c.id] = true
			addr := netip.MustParseAddr(c.addr)
			assert.Equal(t, c.match, set(t, ipfilter.Config{Allow: prefixes(c.cidr)}).Allows(addr))
			assert.Equal(t, !c.match, set(t, ipfilter.Config{Deny: prefixes(c.cidr)}).Allows(addr))
		})
	}
	for _, id := range nettyIDs {
		_, deviates := nettyDeviations[id]
		assert.True(t, ran[id] != deviates, "%s must run or stand in nettyDeviations", id)
		delete(ran, id)
	}
	assert.Empty(t, ran, "cases that are not listed")
}

func TestTheLongestPrefixDecides(t *testing.T) {
	s := set(t, ipfilter.Config{
		Allow: prefixes("10.0.0.0/8", "10.1.2.3/32", "2001:db8::/32"),
		Deny:  prefixes("10.1.0.0/16", "2001:db8:1::/48"),
	})
	for addr, allowed := range map[string]bool{
		"10.0.0.1": true, "10.255.255.255": true, "10.1.0.0": false, "10.1.2.2": false,
		"10.1.2.3": true, "10.1.2.4": false,
		"9.255.255.255": false, "11.0.0.0": false, "2001:db8::1": true, "2001:db8:1::1": false, "2001:db9::": false,
	} {
		assert.Equal(t, allowed, s.Allows(netip.MustParseAddr(addr)), addr)
	}
	assert.Equal(t, 5, s.Len())
}

func TestWhoNoPrefixCoversIsAllowedUnlessThereIsAnAllowList(t *testing.T) {
	for _, addr := range []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), {}} {
		assert.True(t, set(t, ipfilter.Config{}).Allows(addr), addr)
		assert.True(t, set(t, ipfilter.Config{Deny: prefixes("10.0.0.0/8")}).Allows(addr), addr)
		assert.False(t, set(t, ipfilter.Config{Allow: prefixes("10.0.0.0/8")}).Allows(addr), addr)
	}
}

func TestIPv4InsideOfIPv6IsIPv4(t *testing.T) {
	mapped, plain := netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("192.0.2.1")
	for _, prefix := range []string{"192.0.2.0/24", "::ffff:192.0.2.0/120"} {
		s := set(t, ipfilter.Config{Allow: prefixes(prefix)})
		assert.True(t, s.Allows(mapped), prefix)
		assert.True(t, s.Allows(plain), prefix)
		assert.False(t, s.Allows(netip.MustParseAddr("192.0.3.1")), prefix)
	}
	s := set(t, ipfilter.Config{Deny: prefixes("::/0")})
	assert.True(t, s.Allows(mapped), "::/0 is about IPv6")
	assert.False(t, s.Allows(netip.MustParseAddr("::1")))
}

func TestTheZoneOfAnAddressDoesNotMatter(t *testing.T) {
	s := set(t, ipfilter.Config{Deny: prefixes("fe80::/10")})
	assert.False(t, s.Allows(netip.MustParseAddr("fe80::1%eth0")))
}

func TestPrefixesThatMakeNoSense(t *testing.T) {
	for what, cfg := range map[string]ipfilter.Config{
		"invalid":      {Allow: []netip.Prefix{{}}},
		"both":         {Allow: prefixes("10.0.0.0/8"), Deny: prefixes("10.1.1.1/8")},
		"both, mapped": {Allow: prefixes("10.0.0.0/8"), Deny: prefixes("::ffff:10.0.0.0/104")},
		"mixed":        {Deny: prefixes("::ffff:0.0.0.0/95")},
	} {
		_, err := ipfilter.NewSet(cfg)
		assert.ErrorIs(t, err, ipfilter.ErrConfig, what)
		_, err = ipfilter.New(cfg)
		assert.ErrorIs(t, err, ipfilter.ErrConfig, what)
	}
	_, err := ipfilter.NewSet(ipfilter.Config{
		Allow: prefixes("10.0.0.0/8", "10.9.9.9/8"), Deny: prefixes("::ffff:0.0.0.0/96"),
	})
	assert.NoError(t, err)
}

func TestLargeSetsAgreeWithASearchThroughTheList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() netip.Addr {
		var b [16]byte
		if rng.IntN(2) == 0 {
			binary.BigEndian.PutUint32(b[:], rng.Uint32()&0x0fff_ffff)
			return netip.AddrFrom4([4]byte(b[:4]))
		}
		binary.BigEndian.PutUint64(b[:], 0x2001_0db8_0000_0000|rng.Uint64()&0xffff_ffff)
		return netip.AddrFrom16(b)
	}
	decisions := map[netip.Prefix]bool{}
	var cfg ipfilter.Config
	for len(decisions) < 2000 {
		addr := random()
		p := netip.PrefixFrom(addr, 4+rng.IntN(addr.BitLen()-3)).Masked()
		if _, there := decisions[p]; there {
			continue
		}
		decisions[p] = rng.IntN(2) == 0
		if decisions[p] {
			cfg.Allow = append(cfg.Allow, p)
		} else {
			cfg.Deny = append(cfg.Deny, p)
		}
	}
	s := set(t, cfg)
	for range 2000 {
		addr, longest, want := random(), -1, false
		for p, allowed := range decisions {
			if p.Contains(addr) && p.Bits() > longest {
				longest, want = p.Bits(), allowed
			}
		}
		require.Equal(t, want, s.Allows(addr), addr)
	}
}

// witness notes what reaches the handlers behind the filter.
type witness struct{ got []string }

func (w *witness) ChannelActive(ctx *pipeline.Context) error {
	w.got = append(w.got, "active")
	ctx.FireActive()
	return nil
}

func (w *witness) ChannelRead(*pipeline.Context, any) error {
	w.got = append(w.got, "read")
	return nil
}

func (w *witness) ErrorCaught(_ *pipeline.Context, err error) error {
	w.got = append(w.got, err.Error())
	return err
}

func (w *witness) ChannelInactive(ctx *pipeline.Context) error {
	w.got = append(w.got, "inactive")
	ctx.FireInactive()
	return nil
}

func from(addr string) pipelinetest.Config {
	return pipelinetest.Config{RemoteAddr: netip.AddrPortFrom(netip.MustParseAddr(addr), 1), Inactive: true}
}

func TestARejectedPeerIsNeitherActiveNorReadNorInactiveForTheHandlersBehind(t *testing.T) {
	f, err := ipfilter.New(ipfilter.Config{Deny: prefixes("192.0.2.0/24")})
	require.NoError(t, err)
	w := &witness{}
	ch := pipelinetest.NewConfig(t, from("::ffff:192.0.2.7"), f, w)
	ch.WriteInbound("hello")
	ch.Activate()
	assert.True(t, ch.Closed())
	assert.Empty(t, w.got)
	var rejected *ipfilter.RejectedError
	require.ErrorAs(t, ch.Cause(), &rejected)
	assert.ErrorIs(t, rejected, ipfilter.ErrRejected)
	assert.Equal(t, "::ffff:192.0.2.7", rejected.Addr.String())
	assert.Equal(t, ipfilter.Stats{Rejected: 1}, f.Stats())

	ch = pipelinetest.NewConfig(t, from("192.0.3.7"), f, w)
	ch.WriteInbound("hello")
	ch.Activate()
	ch.Close()
	assert.Equal(t, []string{"active", "read", "inactive"}, w.got)
	assert.Equal(t, ipfilter.Stats{Rejected: 1, Accepted: 1}, f.Stats())
}

func TestAddedToAnActiveChannelItJudgesAtOnce(t *testing.T) {
	f, err := ipfilter.New(ipfilter.Config{Allow: prefixes("10.0.0.0/8")})
	require.NoError(t, err)
	w := &witness{}
	ch := pipelinetest.New(t, w)
	ch.Do(func() { assert.NoError(t, ch.Pipeline().AddFirst("filter", f)) })
	assert.True(t, ch.Closed())
	assert.Equal(t, []string{"active", "inactive"}, w.got, "who was told of the one is told of the other")
	assert.ErrorIs(t, ch.Cause(), ipfilter.ErrRejected)
}

func TestASwapIsAboutTheConnectionsThatCome(t *testing.T) {
	f, err := ipfilter.New(ipfilter.Config{})
	require.NoError(t, err)
	first := f.Set()
	before := pipelinetest.New(t, f)
	denied := set(t, ipfilter.Config{Deny: prefixes("0.0.0.0/0")})
	assert.Same(t, first, f.Swap(denied))
	assert.True(t, before.Open(), "it stays")
	assert.True(t, pipelinetest.New(t, f).Closed())
	f.Swap(first)
	assert.True(t, pipelinetest.New(t, f).Open())
	assert.Panics(t, func() { f.Swap(nil) })
}

func TestSwapsFromOtherGoroutines(t *testing.T) {
	f, err := ipfilter.New(ipfilter.Config{})
	require.NoError(t, err)
	yes, no := f.Set(), set(t, ipfilter.Config{Allow: prefixes("10.0.0.0/8")})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 200 {
				f.Swap(no)
				f.Swap(yes)
			}
		})
	}
	const channels = 50
	for range channels {
		pipelinetest.New(t, f).Finish()
	}
	wg.Wait()
	stats := f.Stats()
	assert.EqualValues(t, channels, stats.Accepted+stats.Rejected)
}

func TestAQuestionDoesNotAllocate(t *testing.T) {
	s := set(t, ipfilter.Config{Allow: prefixes("10.0.0.0/8", "2001:db8::/32")})
	addr := netip.MustParseAddr("::ffff:10.1.2.3")
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.Allows(addr) }))
}

func BenchmarkAllows(b *testing.B) {
	for _, n := range []int{3, 100_000} {
		b.Run(fmt.Sprintf("prefixes=%d", n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			var cfg ipfilter.Config
			for range n {
				var a [4]byte
				binary.BigEndian.PutUint32(a[:], rng.Uint32())
				cfg.Deny = append(cfg.Deny, netip.PrefixFrom(netip.AddrFrom4(a), 8+rng.IntN(25)))
			}
			s := set(b, cfg)
			addr := netip.MustParseAddr("198.51.100.7")
			b.ReportAllocs()
			for b.Loop() {
				s.Allows(addr)
			}
		})
	}
}
