//go:build linux

package uring

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/ring/ringtest"
	"github.com/weirnet/weir/transport"
)

func TestConfigTakesPowersOfTwoWithinLimits(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		ok   bool
	}{
		{"zero", Config{}, true},
		{"fewest entries", Config{Entries: 8, CompletionEntries: 8}, true},
		{"too few entries", Config{Entries: 4}, false},
		{"not a power of two", Config{Entries: 9}, false},
		{"most entries", Config{Entries: 1 << 15, CompletionEntries: 1 << 16}, true},
		{"too many entries", Config{Entries: 1 << 16}, false},
		{"fewer completions than entries", Config{Entries: 16, CompletionEntries: 8}, false},
		{"too many completions", Config{CompletionEntries: 1 << 17}, false},
		{"one block", Config{Blocks: 1}, true},
		{"negative blocks", Config{Blocks: -1}, false},
		{"most blocks", Config{Blocks: 1 << 15}, true},
		{"too many blocks", Config{Blocks: 1 << 16}, false},
		{"smallest block", Config{BlockBytes: 256}, true},
		{"too small block", Config{BlockBytes: 128}, false},
		{"largest block", Config{BlockBytes: 1 << 20}, true},
		{"too large block", Config{BlockBytes: 1 << 21}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := tc.cfg.withDefaults()
			require.Equal(t, tc.ok, err == nil, "%v", err)
			if !tc.ok {
				_, err := Open(tc.cfg)
				require.Error(t, err)
				return
			}
			require.Positive(t, cfg.Entries)
			require.GreaterOrEqual(t, cfg.CompletionEntries, cfg.Entries)
		})
	}
}

func TestAHandleOfAnEarlierSocketIsStale(t *testing.T) {
	var ss slots
	seen := map[transport.Handle]bool{}
	for i := range 1000 {
		s := ss.take(i, stateOpen)
		h := s.handle()
		require.NotZero(t, h)
		require.False(t, seen[h])
		seen[h] = true
		require.Same(t, s, ss.find(h))
		require.Same(t, s, ss.owner(s.data(kindRecv)))
		data := s.data(kindRecv)
		ss.give(s)
		require.Nil(t, ss.find(h))
		require.Nil(t, ss.owner(data))
	}
	require.EqualValues(t, chunkSlots, ss.len(), "slots are used again")
	require.Nil(t, ss.find(1<<20))
	require.Nil(t, ss.owner(1<<20))
}

func TestGenerationsSkipZeroWhenTheyWrap(t *testing.T) {
	var ss slots
	s := ss.take(1, stateOpen)
	s.gen = genMask
	ss.give(s)
	require.EqualValues(t, 1, ss.take(1, stateOpen).gen)
}

func TestSlotsStayWhereTheyAre(t *testing.T) {
	var ss slots
	var all []*slot
	for i := range 5 * chunkSlots {
		all = append(all, ss.take(i, stateOpen))
	}
	for i, s := range all {
		require.Same(t, s, ss.at(s.index))
		require.EqualValues(t, i, s.fd)
	}
	require.Equal(t, 5*chunkSlots, ss.open)
}

// TestAStaleCompletionIsCountedAndWhatItBringsIsFreed plays what the kernel must not do: a completion for a slot that
// was freed.
func TestAStaleCompletionIsCountedAndWhatItBringsIsFreed(t *testing.T) {
	tr, _ := openScripted(t, Config{Blocks: 1}, 1, ringtest.Script{})
	defer func() { require.NoError(t, tr.Close()) }()
	receiver := func() (*slot, int) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fds[1]) })
		s := tr.slots.take(fds[0], stateOpen)
		tr.Submit(transport.Op{Kind: transport.Recv, Handle: s.handle(), Token: 1, Limit: 10})
		_, err = unix.Write(fds[1], []byte("0123456789"))
		require.NoError(t, err)
		return s, fds[0]
	}
	s, fd := receiver()
	tr.regulate()
	tr.issue()
	require.NoError(t, tr.ring.Poll())
	tr.drain(false) // it has come, and was not handed out
	accept := s.data(kindAccept)
	tr.slots.give(s)
	require.NoError(t, unix.Close(fd))

	var p [2]int
	require.NoError(t, unix.Pipe(p[:]))
	defer unix.Close(p[0])
	tr.outstanding++
	tr.events.Push(event{data: accept, result: int32(p[1])})
	out, err := tr.Wait(nil, 0)
	require.NoError(t, err)
	require.Empty(t, out)
	require.EqualValues(t, 2, tr.Stats().Stale)
	n, err := unix.Read(p[0], make([]byte, 1))
	require.NoError(t, err)
	require.Zero(t, n, "the accepted descriptor is closed")

	receiver()
	out, err = tr.Wait(nil, 0)
	require.NoError(t, err)
	require.Len(t, out, 1, "the kernel has its one block again")
	out[0].Buf.Release()
}

// TestASocketTakesThreeCacheLines so that an idle connection stays cheap: nobody lets it grow without noticing.
func TestASocketTakesThreeCacheLines(t *testing.T) {
	require.LessOrEqual(t, int(reflect.TypeFor[slot]().Size()), 192)
}

// TestWhatTheKernelHasNotTakenKeepsItsVectors while further sends are made.
func TestWhatTheKernelHasNotTakenKeepsItsVectors(t *testing.T) {
	tr, k := openScripted(t, Config{}, 1, ringtest.Script{Again: 256})
	k.Stop()
	defer func() { require.NoError(t, tr.Close()) }()
	var peers []int
	var handles []transport.Handle
	for range 2 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		require.NoError(t, err)
		defer unix.Close(fds[1])
		peers = append(peers, fds[1])
		handles = append(handles, tr.slots.take(fds[0], stateOpen).handle())
	}
	_, err := tr.Wait(nil, 0)
	require.NoError(t, err)
	send := func(i int, p string) {
		tr.Submit(transport.Op{
			Kind: transport.Send, Handle: handles[i], Token: transport.Token(i + 1),
			Bufs: []*buffer.Buf{
				buffer.Wrap([]byte(p[:2])), buffer.Wrap([]byte(p[2:])),
			},
		})
	}
	k.Start()
	send(0, "first")
	out, err := tr.Wait(nil, 0)
	require.NoError(t, err)
	require.Empty(t, out, "the kernel takes nothing")
	send(1, "second")
	k.Stop()
	out, err = tr.Wait(nil, 0)
	require.NoError(t, err)
	require.Len(t, out, 2)
	for i, want := range []string{"first", "second"} {
		p := make([]byte, 100)
		n, err := unix.Read(peers[i], p)
		require.NoError(t, err)
		require.Equal(t, want, string(p[:n]))
	}
}
