//go:build linux

package ring

import (
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const group = 5

// blocks returns n blocks and puts them into a new buffer ring.
func blocks(tb testing.TB, r *Ring, n, size int) (*BufferRing, [][]byte) {
	tb.Helper()
	ring, err := r.RegisterBuffers(group, n)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, ring.Unregister()) })
	mem := make([][]byte, n)
	for i := range mem {
		mem[i] = make([]byte, size)
		ring.Add(mem[i], uint16(i))
	}
	ring.Publish()
	return ring, mem
}

func recv(r *Ring, fd int32, data uint64, length, limit uint32) {
	e := r.Get()
	if limit == 0 {
		Recv(e, fd, group, length)
	} else {
		RecvLimited(e, fd, group, length, limit)
	}
	e.SetUserData(data)
}

func TestBlocksGoRoundTheBufferRing(t *testing.T) {
	r := open(t, Config{Entries: 8})
	ring, mem := blocks(t, r, 8, 64)
	fd, peer := pair(t)
	for i := range uint64(1000) { // the tail's 16 bits do not wrap, the ring's mask does
		_, err := unix.Write(peer, binary.NativeEndian.AppendUint64(nil, i*0x0101010101))
		require.NoError(t, err)
		recv(r, fd, i, 64, 0)
		c := collect(t, r, 1)[0]
		require.Equal(t, i, c.data)
		require.EqualValues(t, 8, c.res)
		require.NotZero(t, c.flags&FlagBuffer)
		id := uint16(c.flags >> bufferShift)
		require.Equal(t, i*0x0101010101, binary.NativeEndian.Uint64(mem[id]))
		ring.Add(mem[id], id)
		ring.Publish()
	}
}

func TestTheBufferRingsTailWrapsAround(t *testing.T) {
	r := open(t, Config{Entries: 8})
	ring, mem := blocks(t, r, 4, 64)
	fd, peer := pair(t)
	for i := range 1<<16 + 10 {
		_, err := unix.Write(peer, []byte{byte(i)})
		require.NoError(t, err)
		recv(r, fd, 1, 64, 0)
		require.NoError(t, r.Poll())
		first, end := r.Ready()
		require.Equal(t, first+1, end)
		c := r.Completion(first)
		id := BufferID(c)
		require.Equal(t, byte(i), mem[id][0])
		r.Reaped(end)
		ring.Add(mem[id], id)
		ring.Publish()
	}
}

func TestAnEmptyBufferRingAnswersENOBUFS(t *testing.T) {
	r := open(t, Config{Entries: 8})
	ring, mem := blocks(t, r, 1, 4)
	fd, peer := pair(t)
	_, err := unix.Write(peer, []byte("abcdefgh"))
	require.NoError(t, err)
	recv(r, fd, 1, 0, 100)
	cs := collect(t, r, 2)
	if cs[0].res == -int32(unix.EINVAL) {
		t.Skip("this kernel has no limited receives")
	}
	require.Equal(t, result{1, 4, FlagMore | FlagBuffer | FlagNonEmpty}, cs[0])
	require.Equal(t, -int32(unix.ENOBUFS), cs[1].res)
	require.Zero(t, cs[1].flags&FlagMore)
	ring.Add(mem[0], 0)
	ring.Publish()
	recv(r, fd, 2, 4, 0)
	require.EqualValues(t, 4, collect(t, r, 1)[0].res)
	require.Equal(t, "efgh", string(mem[0]))
}

func TestLimitedReceivesEndAtTheirLimit(t *testing.T) {
	r := open(t, Config{Entries: 8})
	_, _ = blocks(t, r, 8, 16)
	fd, peer := pair(t)
	_, err := unix.Write(peer, make([]byte, 64))
	require.NoError(t, err)
	recv(r, fd, 1, 15, 30)
	cs := collect(t, r, 2)
	if cs[0].res == -int32(unix.EINVAL) {
		t.Skip("this kernel has no limited receives")
	}
	require.EqualValues(t, 15, cs[0].res)
	require.NotZero(t, cs[0].flags&FlagMore)
	require.EqualValues(t, 15, cs[1].res)
	require.Zero(t, cs[1].flags&FlagMore)
	require.NoError(t, r.Poll())
	require.Empty(t, reap(r), "nothing is armed any more")
}

func TestVectorsAndMessagesArriveInOrder(t *testing.T) {
	r := open(t, Config{Entries: 8})
	arena, err := NewArena()
	require.NoError(t, err)
	defer arena.Close()
	fd, peer := pair(t)
	for _, message := range []bool{true, false} {
		v := arena.Vectors(2)
		v[0], v[1] = MakeVector([]byte("over the ")), MakeVector([]byte("weir"))
		e := r.Get()
		if message {
			SendMessage(e, fd, arena.Header(), v, unix.MSG_NOSIGNAL)
		} else {
			SendVectors(e, fd, v, unix.MSG_NOSIGNAL)
		}
		c := collect(t, r, 1)[0]
		if !message && c.res == -int32(unix.EINVAL) {
			t.Skip("this kernel has no vectors without a header")
		}
		require.EqualValues(t, 13, c.res)
		p := make([]byte, 100)
		n, err := unix.Read(peer, p)
		require.NoError(t, err)
		require.Equal(t, "over the weir", string(p[:n]))
	}
}

func TestASkippedSendIsSilentUnlessItFallsShort(t *testing.T) {
	r := open(t, Config{Entries: 8})
	fd, _ := pair(t)
	const flags = unix.MSG_DONTWAIT | unix.MSG_WAITALL | unix.MSG_NOSIGNAL
	p := make([]byte, 1<<20)
	send := func(p []byte) {
		e := r.Get()
		Send(e, fd, p, flags)
		SkipSuccess(e)
		e.SetUserData(9)
		require.NoError(t, r.Poll())
	}
	send(p[:100])
	require.Empty(t, reap(r))
	send(p)
	c := reap(r)
	require.Len(t, c, 1)
	require.Positive(t, c[0].res)
	require.Less(t, int(c[0].res), len(p))
	send(p[:100])
	require.Equal(t, []result{{9, -int32(unix.EAGAIN), 0}}, reap(r))
}

func TestCloseLinkedToCancelLetsTheFINOut(t *testing.T) {
	r := open(t, Config{Entries: 8})
	_, _ = blocks(t, r, 4, 64)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	defer unix.Close(fds[1])
	fd := int32(fds[0])
	recv(r, fd, 1, 64, 0)
	require.NoError(t, r.Poll())
	e := r.Get()
	CancelDescriptor(e, fd)
	HardLink(e)
	e.SetUserData(2)
	e = r.Get()
	Close(e, fd)
	e.SetUserData(3)
	got := map[uint64]int32{}
	for _, c := range collect(t, r, 3) {
		got[c.data] = c.res
	}
	require.Equal(t, map[uint64]int32{1: -int32(unix.ECANCELED), 2: 1, 3: 0}, got)
	require.NoError(t, r.Poll())
	n, err := unix.Read(fds[1], make([]byte, 1))
	require.NoError(t, err)
	require.Zero(t, n, "end of file")
}

func TestRegisterBuffersRefusesOtherLengths(t *testing.T) {
	r := open(t, Config{Entries: 8})
	for _, n := range []int{0, 3, MaxBuffers - 1, 2 * MaxBuffers} {
		_, err := r.RegisterBuffers(group, n)
		require.ErrorContains(t, err, "power of two")
	}
	b, err := r.RegisterBuffers(group, MaxBuffers)
	require.NoError(t, err)
	_, err = r.RegisterBuffers(group, 8)
	require.ErrorIs(t, err, syscall.EEXIST)
	require.NoError(t, b.Unregister())
}
