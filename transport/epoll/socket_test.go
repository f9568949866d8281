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

// TestTheTableFindsSocketsByHandle compares the table with a map over random sockets that come and go.
func TestTheTableFindsSocketsByHandle(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var tab table
	open := map[transport.Handle]*socket{}
	var handles []transport.Handle
	stale := []transport.Handle{0}
	for range 20_000 {
		if k := rng.IntN(2); k == 0 && len(handles) < 1000 {
			s := tab.add(7, 0)
			h := s.handle()
			require.NotZero(t, h)
			require.NotContains(t, open, h)
			open[h] = s
			handles = append(handles, h)
		} else if len(handles) > 0 {
			i := rng.IntN(len(handles))
			h := handles[i]
			require.Same(t, open[h], tab.lookup(h))
			open[h].flags |= flagDirty
			tab.remove(open[h])
			delete(open, h)
			stale = append(stale, h)
			handles[i] = handles[len(handles)-1]
			handles = handles[:len(handles)-1]
		}
		require.Nil(t, tab.lookup(stale[rng.IntN(len(stale))]))
	}
	require.Equal(t, len(handles), tab.open)
}

func TestNoHandleIsEverZero(t *testing.T) {
	var tab table
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
	var tab table
	s := tab.add(1, flagListener)
	s.flags |= flagDirty | flagResuming | flagHung | flagEOF
	tab.remove(s)
	again := tab.add(2, flagConnecting)
	require.Same(t, s, again)
	require.Equal(t, flagOpen|flagConnecting|flagDirty|flagResuming, again.flags)
}

func TestAFullTableAddsNothing(t *testing.T) {
	var tab table
	tab.used = maxSockets
	require.Nil(t, tab.add(1, 0))
	require.Zero(t, tab.open)
}
