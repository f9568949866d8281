// Package ipfilter turns peers away by their IP address.
//
// A Set holds prefixes that are allowed and prefixes that are denied; the longest one that covers an address decides.
// An IPv4 address that is written as an IPv6 one (::ffff:192.0.2.1, as dual-stack sockets report it) is the IPv4
// address. No other prefix of one family covers addresses of the other, not even ::/0.
//
// One Filter stands in all pipelines, first, and judges each connection when it becomes active, before anything is read
// or allocated for it by the handlers behind. Another Set may be put in place at any time, from any goroutine; it is
// asked about the connections that come from then on.
package ipfilter

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/gaissmai/bart"

	"github.com/weirnet/weir/pipeline"
)

var (
	// ErrConfig is returned for prefixes that make no sense.
	ErrConfig = errors.New("ipfilter: bad configuration")
	// ErrRejected is in the chain of every RejectedError.
	ErrRejected = errors.New("ipfilter: peer rejected")
)

// RejectedError is the cause of closing a channel whose peer was turned away.
type RejectedError struct {
	Addr netip.Addr // invalid where the peer has none

	unheard bool // handlers behind the filter were not told that the channel is active
}

// Error implements error.
func (e *RejectedError) Error() string { return fmt.Sprintf("%v: %v", ErrRejected, e.Addr) }

// Unwrap makes errors.Is(err, ErrRejected) true.
func (e *RejectedError) Unwrap() error { return ErrRejected }

// Config lists prefixes. Host bits are ignored: 192.0.2.1/24 is 192.0.2.0/24. The zero value allows everybody.
type Config struct {
	// Allow is who may connect. When there is one, who is covered by no prefix at all may not.
	Allow []netip.Prefix
	// Deny is who may not. The longest prefix decides, so Deny cuts holes into Allow and the other way round; the same
	// prefix in both is an error.
	Deny []netip.Prefix
}

// Set is prefixes, ready to be asked. It never changes; any goroutine may ask it. A question costs some ten nanoseconds
// whether there are three prefixes or a million, and no allocation.
type Set struct {
	table  bart.Table[bool] // allowed?
	others bool             // whether addresses that no prefix covers are allowed
}

// NewSet returns the Set for cfg, which it does not keep.
func NewSet(cfg Config) (*Set, error) {
	s := &Set{others: len(cfg.Allow) == 0}
	for _, list := range []struct {
		prefixes []netip.Prefix
		allowed  bool
	}{{cfg.Allow, true}, {cfg.Deny, false}} {
		for _, p := range list.prefixes {
			plain, err := normal(p)
			if err != nil {
				return nil, err
			}
			if was, there := s.table.Get(plain); there && was != list.allowed {
				return nil, fmt.Errorf("%w: %v is both allowed and denied", ErrConfig, p)
			}
			s.table.Insert(plain, list.allowed)
		}
	}
	return s, nil
}

// Allows reports whether a peer of that address may connect. The zero Addr, of a peer without one (a Unix socket), is
// covered by no prefix.
func (s *Set) Allows(addr netip.Addr) bool {
	if !addr.IsValid() {
		return s.others
	}
	if allowed, covered := s.table.Lookup(addr.Unmap().WithZone("")); covered {
		return allowed
	}
	return s.others
}

// Len is how many different prefixes there are.
func (s *Set) Len() int { return s.table.Size() }

// Stats is what a Filter has decided.
type Stats struct {
	Accepted uint64
	Rejected uint64
}

// Filter is the handler. It keeps nothing about a channel: one Filter stands in any number of pipelines on any loops.
type Filter struct {
	set      atomic.Pointer[Set]
	accepted atomic.Uint64
	rejected atomic.Uint64
}

var (
	_ pipeline.AddedHandler    = (*Filter)(nil)
	_ pipeline.ActiveHandler   = (*Filter)(nil)
	_ pipeline.InactiveHandler = (*Filter)(nil)
)

// New returns a Filter that asks the Set of cfg.
func New(cfg Config) (*Filter, error) {
	s, err := NewSet(cfg)
	if err != nil {
		return nil, err
	}
	f := &Filter{}
	f.set.Store(s)
	return f, nil
}

// Swap puts s, which must not be nil, in the place of the Set, and returns the one before. Any goroutine may call it.
// Connections that were accepted stay.
func (f *Filter) Swap(s *Set) *Set {
	if s == nil {
		panic("ipfilter: Swap(nil)")
	}
	return f.set.Swap(s)
}

// Set returns the Set that is asked at present. Any goroutine may call it.
func (f *Filter) Set() *Set { return f.set.Load() }

// Stats returns the counts. Any goroutine may call it.
func (f *Filter) Stats() Stats {
	return Stats{Accepted: f.accepted.Load(), Rejected: f.rejected.Load()}
}

// HandlerAdded judges the peer of a channel that is active already.
func (f *Filter) HandlerAdded(ctx *pipeline.Context) error {
	if ctx.Active() {
		f.admit(ctx, false)
	}
	return nil
}

// ChannelActive aborts the channel of a peer that may not connect: the handlers behind never hear of it.
func (f *Filter) ChannelActive(ctx *pipeline.Context) error {
	if f.admit(ctx, true) {
		ctx.FireActive()
	}
	return nil
}

// ChannelInactive passes on what was active for the handlers behind.
func (f *Filter) ChannelInactive(ctx *pipeline.Context) error {
	var e *RejectedError
	if !errors.As(ctx.Cause(), &e) || !e.unheard {
		ctx.FireInactive()
	}
	return nil
}

func (f *Filter) admit(ctx *pipeline.Context, unheard bool) bool {
	addr := ctx.RemoteAddrPort().Addr()
	if (addr.IsValid() || unix(ctx.RemoteAddr())) && f.set.Load().Allows(addr) {
		f.accepted.Add(1)
		return true
	}
	f.rejected.Add(1)
	ctx.Abort(&RejectedError{Addr: addr, unheard: unheard})
	return false
}

// unix reports whether a peer without an IP address has a Unix socket. Of another one it is not known who it is: it may
// be one that is denied.
func unix(addr net.Addr) bool {
	_, ok := addr.(*net.UnixAddr)
	return ok
}

// normal is p without host bits and, where it is IPv4 inside of IPv6, as IPv4.
func normal(p netip.Prefix) (netip.Prefix, error) {
	if !p.IsValid() {
		return p, fmt.Errorf("%w: an invalid prefix", ErrConfig)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, fmt.Errorf("%w: %v covers IPv4 addresses and others: list both", ErrConfig, p)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}
