//go:build linux

package epoll

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
)

func TestASocketIsTwoCacheLines(t *testing.T) {
	require.EqualValues(t, 128, reflect.TypeFor[socket]().Size())
}

// TestTheTableFindsOperationsByToken compares the table with maps over random operations, with tokens that collide.
func TestTheTableFindsOperationsByToken(t *testing.T) {
	type place struct {
		h  transport.Handle
		op operation
	}
	rng := rand.New(rand.NewPCG(5, 6))
	tab := newTable()
	open := map[transport.Handle]uint32{} // the flags of its operations
	tokens := map[transport.Token]place{}
	var handles []transport.Handle
	stale := []transport.Handle{0}
	for range 20_000 {
		switch k := rng.IntN(10); {
		case k < 3 && len(handles) < 1000:
			s := tab.add(7, 0)
			h := s.handle()
			require.NotZero(t, h)
			require.NotContains(t, open, h)
			open[h] = 0
			handles = append(handles, h)
		case k < 4 && len(handles) > 0:
			i := rng.IntN(len(handles))
			h := handles[i]
			s := tab.lookup(h)
			for op := range operations {
				if s.has(op) {
					delete(tokens, tab.end(s, op))
				}
			}
			s.flags |= flagDirty
			tab.remove(s)
			require.EqualValues(t, flagDirty, s.flags, "lists still name the slot")
			delete(open, h)
			stale = append(stale, h)
			handles[i] = handles[len(handles)-1]
			handles = handles[:len(handles)-1]
		case k < 8 && len(handles) > 0:
			h := handles[rng.IntN(len(handles))]
			op := operation(rng.IntN(int(operations)))
			s := tab.lookup(h)
			if s.has(op) {
				delete(tokens, tab.end(s, op))
				continue
			}
			token := transport.MakeToken(rng.Uint32N(2000), 1, uint8(op))
			if _, taken := tokens[token]; !taken {
				tab.begin(s, op, token)
				tokens[token] = place{h, op}
			}
		default:
			token := transport.MakeToken(rng.Uint32N(2000), 1, uint8(rng.IntN(int(operations))))
			s, op := tab.find(token)
			want, ok := tokens[token]
			require.Equal(t, ok, s != nil)
			if ok {
				require.Equal(t, want, place{s.handle(), op})
			}
			require.Nil(t, tab.lookup(stale[rng.IntN(len(stale))]))
		}
	}
	require.Equal(t, len(handles), tab.open)
	for token, want := range tokens {
		s, op := tab.find(token)
		require.NotNil(t, s)
		require.Equal(t, want, place{s.handle(), op})
	}
}

func TestNoHandleIsEverZero(t *testing.T) {
	tab := newTable()
	s := tab.add(1, 0)
	s.generation = 1<<32 - 1
	last := s.handle()
	tab.remove(s)
	s = tab.add(1, 0)
	require.EqualValues(t, 1, s.generation)
	require.NotZero(t, s.handle())
	require.Nil(t, tab.lookup(last))
}

func TestASlotThatListsNameKnowsItWhenItIsUsedAgain(t *testing.T) {
	tab := newTable()
	s := tab.add(1, flagListener)
	s.flags |= flagDirty | flagResuming | flagHung | flagEOF
	tab.remove(s)
	again := tab.add(2, flagConnecting)
	require.Same(t, s, again)
	require.Equal(t, flagOpen|flagConnecting|flagDirty|flagResuming, again.flags)
}

func TestAFullTableAddsNothing(t *testing.T) {
	tab := newTable()
	tab.used = maxSockets
	require.Nil(t, tab.add(1, 0))
	require.Zero(t, tab.open)
}

func TestTheQueueKeepsOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var q completions
	var dst []transport.Completion
	pushed, taken := 0, 0
	for range 20_000 {
		if rng.IntN(2) == 0 {
			for range rng.IntN(10) {
				c := q.push()
				require.Equal(t, transport.Completion{}, *c)
				c.N = pushed
				pushed++
			}
			continue
		}
		n := rng.IntN(12)
		want := min(n, q.len())
		dst = q.take(dst[:0], n)
		require.Len(t, dst, want)
		for _, c := range dst {
			require.Equal(t, taken, c.N)
			taken++
		}
		require.Equal(t, pushed-taken, q.len())
	}
	require.Less(t, cap(q.list), 4096, "what was taken does not pile up")
}
