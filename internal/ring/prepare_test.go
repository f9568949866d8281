//go:build linux

package ring

import (
	"math"
	"testing"
	"unsafe"

	abi "github.com/iceber/iouring-go/syscall"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestEntriesHaveTheKernelsLayout(t *testing.T) {
	require.EqualValues(t, sqeBytes, unsafe.Sizeof(SQE{}))
	require.EqualValues(t, sqeBytes, unsafe.Sizeof(Entry{}))
	require.EqualValues(t, cqeBytes, unsafe.Sizeof(CQE{}))
	require.EqualValues(t, cqeBytes, unsafe.Sizeof(completion{}))
	require.EqualValues(t, bufferEntryBytes, unsafe.Sizeof(bufferEntry{}))
	require.EqualValues(t, 24, unsafe.Sizeof(eventsArg{}))
	require.EqualValues(t, 40, unsafe.Sizeof(bufferReg{}))
	require.EqualValues(t, unsafe.Sizeof(unix.Iovec{}), unsafe.Sizeof(Vector{}))
	require.EqualValues(t, unsafe.Sizeof(unix.Msghdr{}), unsafe.Sizeof(MessageHeader{}))

	var e SQE
	e.PrepOperation(1, 2, 3, 4, 5)
	e.SetFlags(6)
	e.SetIoprio(7)
	e.SetOpFlags(8)
	e.SetUserData(9)
	e.SetBufGroup(10)
	e.SetSpliceFdIn(11)
	require.Equal(t, Entry{
		Opcode: 1, FD: 2, Address: 3, Length: 4, Offset: 5, Flags: 6, Ioprio: 7, OpFlags: 8, UserData: 9, Group: 10,
		Optlen: 11,
	}, Read(&e))
	require.EqualValues(t, 44, unsafe.Offsetof(Entry{}.Optlen)) // of struct io_uring_sqe

	var c CQE
	Write(&c, 1<<40, -5, 7<<bufferShift|FlagMore|FlagBuffer)
	require.Equal(t, uint64(1<<40), c.UserData())
	require.EqualValues(t, -5, c.Result())
	require.EqualValues(t, 7, BufferID(&c))
}

func TestPrepareFillsWhatTheKernelReads(t *testing.T) {
	arena, err := NewArena()
	require.NoError(t, err)
	defer arena.Close()
	p := []byte("weir")
	v := arena.Vectors(2)
	h := arena.Header()
	name := arena.Name(unsafe.Pointer(&p[0]), 4)
	at := func(p []byte) uint64 { return uint64(address(p)) }
	vectors := uint64(uintptr(unsafe.Pointer(&v[0])))
	for _, tc := range []struct {
		name string
		prep func(e *SQE)
		want Entry
	}{
		{"Recv", func(e *SQE) { Recv(e, 7, 3, 100) }, Entry{
			Opcode: abi.IORING_OP_RECV, FD: 7, Length: 100,
			Flags: 1 << 5, Group: 3,
		}},
		{
			"RecvLimited", func(e *SQE) { RecvLimited(e, 7, 3, 100, 1000) },
			Entry{Opcode: abi.IORING_OP_RECV, FD: 7, Length: 100, Flags: 1 << 5, Group: 3, Ioprio: 2, Optlen: 1000},
		},
		{
			"Send", func(e *SQE) { Send(e, 7, p, unix.MSG_NOSIGNAL); SkipSuccess(e) },
			Entry{
				Opcode: abi.IORING_OP_SEND, FD: 7, Address: at(p), Length: 4, OpFlags: unix.MSG_NOSIGNAL,
				Flags: 1 << 6,
			},
		},
		{
			"SendVectors", func(e *SQE) { SendVectors(e, 7, v, 5) },
			Entry{Opcode: abi.IORING_OP_SEND, FD: 7, Address: vectors, Length: 2, OpFlags: 5, Ioprio: 32},
		},
		{
			"SendMessage", func(e *SQE) { SendMessage(e, 7, h, v, 5) },
			Entry{
				Opcode: abi.IORING_OP_SENDMSG, FD: 7, Address: uint64(uintptr(unsafe.Pointer(h))), Length: 1,
				OpFlags: 5,
			},
		},
		{
			"Accept", func(e *SQE) { Accept(e, 7, false) },
			Entry{Opcode: abi.IORING_OP_ACCEPT, FD: 7, OpFlags: unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK},
		},
		{
			"Accept, looking first", func(e *SQE) { Accept(e, 7, true) },
			Entry{Opcode: abi.IORING_OP_ACCEPT, FD: 7, OpFlags: unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, Ioprio: 1 << 2},
		},
		{"Connect", func(e *SQE) { Connect(e, 7, name) }, Entry{
			Opcode: abi.IORING_OP_CONNECT, FD: 7, Address: at(name),
			Offset: 4,
		}},
		{
			"Poll", func(e *SQE) { Poll(e, 7, unix.POLLIN, true) },
			Entry{Opcode: abi.IORING_OP_POLL_ADD, FD: 7, Length: 1, OpFlags: pollWord(unix.POLLIN)},
		},
		{
			"Cancel", func(e *SQE) { Cancel(e, 99); HardLink(e) },
			Entry{Opcode: abi.IORING_OP_ASYNC_CANCEL, FD: -1, Address: 99, Flags: 1 << 3},
		},
		{
			"CancelDescriptor", func(e *SQE) { CancelDescriptor(e, 7) },
			Entry{Opcode: abi.IORING_OP_ASYNC_CANCEL, FD: 7, OpFlags: 3},
		},
		{
			"CancelEverything", func(e *SQE) { CancelEverything(e) },
			Entry{Opcode: abi.IORING_OP_ASYNC_CANCEL, FD: -1, OpFlags: 5},
		},
		{"Close", func(e *SQE) { Close(e, 7) }, Entry{Opcode: abi.IORING_OP_CLOSE, FD: 7}},
		{
			"Splice", func(e *SQE) { Splice(e, 8, 1<<33, 7, 100) },
			Entry{
				Opcode: abi.IORING_OP_SPLICE, FD: 7, Address: 1 << 33, Offset: math.MaxUint64, Length: 100,
				Optlen: 8,
			},
		},
		{"ReadAt", func(e *SQE) { ReadAt(e, 8, p, 1<<33) }, Entry{
			Opcode: abi.IORING_OP_READ, FD: 8, Address: at(p),
			Offset: 1 << 33, Length: 4,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var e SQE
			tc.prep(&e)
			require.Equal(t, tc.want, Read(&e))
		})
	}
}

func TestArenaIsFullAtItsLimits(t *testing.T) {
	a, err := NewArena()
	require.NoError(t, err)
	defer a.Close()
	for range arenaVectors/MaxVectors - 1 {
		require.Len(t, a.Vectors(MaxVectors), MaxVectors)
	}
	require.Len(t, a.Vectors(MaxVectors-1), MaxVectors-1)
	require.Nil(t, a.Vectors(2))
	require.Len(t, a.Vectors(1), 1)
	require.Nil(t, a.Vectors(1))
	for range arenaHeaders {
		require.NotNil(t, a.Header())
	}
	require.Nil(t, a.Header())
	name := make([]byte, nameBytes+1)
	at := unsafe.Pointer(&name[0])
	require.Nil(t, a.Name(at, nameBytes+1))
	for i := range arenaNames {
		name[0], name[1] = byte(i), 1
		require.Equal(t, []byte{byte(i), 1}, a.Name(at, 2))
	}
	require.Nil(t, a.Name(at, 1))
	a.Reset()
	require.NotNil(t, a.Name(at, nameBytes))
	require.Len(t, a.Vectors(MaxVectors), MaxVectors)
}

func TestWordsHaveThisMachinesOrder(t *testing.T) {
	mem := make([]byte, 16)
	*word(mem, tailWordOffset) = tailWord(0x1234, 0x5678)
	e := view[bufferEntry](mem, 0, 1)[0]
	require.EqualValues(t, 0x1234, e.id)
	require.EqualValues(t, 0x5678, e.resv)
}
