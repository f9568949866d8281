package admission

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
)

const sourceShards = 64

// sources counts connections by source. Any goroutine may call its methods. An entry lives as long as its source has a
// connection.
type sources struct {
	each, most   int64 // connections of one; sources
	bits4, bits6 int
	known        atomic.Int64
	seed         maphash.Seed
	shards       [sourceShards]sourceShard
}

type sourceShard struct {
	mu    sync.Mutex
	count map[netip.Addr]int64 // guarded by mu
}

// source is whom a connection counts for: the first address of its prefix. Who is not known is the zero Addr, a source
// like any other.
func (s *sources) source(peer netip.AddrPort) netip.Addr {
	addr := peer.Addr().Unmap()
	bits := s.bits6
	if addr.Is4() {
		bits = s.bits4
	}
	prefix, err := addr.Prefix(bits) // which drops the zone
	if err != nil {
		return netip.Addr{}
	}
	return prefix.Addr()
}

func (s *sources) shard(source netip.Addr) *sourceShard {
	return &s.shards[maphash.Comparable(s.seed, source)%sourceShards]
}

// take counts a connection; Accepted, or why not.
func (s *sources) take(source netip.Addr) Reason {
	sh := s.shard(source)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.count[source]
	switch {
	case n >= s.each:
		return PerSource
	case n > 0:
	case s.known.Add(1) > s.most:
		s.known.Add(-1)
		return Sources
	case sh.count == nil:
		sh.count = map[netip.Addr]int64{}
	}
	sh.count[source] = n + 1
	return Accepted
}

func (s *sources) give(source netip.Addr) {
	sh := s.shard(source)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if n := sh.count[source]; n > 1 {
		sh.count[source] = n - 1
		return
	}
	delete(sh.count, source)
	s.known.Add(-1)
}
