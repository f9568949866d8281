package epoll

import (
	"os"
	"syscall"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// operation is an operation that can be in progress on a socket, by its place in the socket.
type operation uint32

const (
	reading  operation = iota // Recv; Accept of a listener; Connect of a socket that is not yet connected
	writing                   // Send, SendFile
	watching                  // WatchClose
	operations
)

// The flags of a socket. The bit 1<<op says that op is in progress.
const (
	flagOpen       uint32 = 1 << (iota + operations) // the slot is in use
	flagListener                                     // a listener
	flagConnecting                                   // not yet connected
	flagFull                                         // the Send in progress waits for room in the kernel
	flagInEpoll                                      // epoll knows the socket, with the events in interest
	flagHung                                         // epoll reported HUP or ERR, which cannot be masked
	flagEOF                                          // Recv delivered io.EOF
	flagWatchBreak                                   // the WatchClose in progress was submitted after that
	flagShared                                       // others may have descriptors of the socket
	flagDirty                                        // in Transport.dirty
	flagResuming                                     // in Transport.resuming

	// The lists name slots, so these survive the end of a slot's socket.
	listFlags = flagDirty | flagResuming
)

// socket is a slot of the table. It has 128 bytes: two cache lines.
type socket struct {
	fd         int32
	generation uint32
	number     uint32 // its own slot
	flags      uint32
	interest   uint32 // events epoll has, while flagInEpoll
	broken     uint32 // the errno that broke the connection; 0: none seen
	limit      int    // Recv: bytes still to deliver; Accept: connections, zero without limit

	tokens [operations]transport.Token
	free   uint32 // the next free slot, plus one

	bufs []*buffer.Buf // Send: what is left, bufs[0] without its first offset bytes
	off  int
	file *fileSend // SendFile
	more *setup    // listeners and connecting sockets

	_ [16]byte
}

// fileSend is the state of a SendFile.
type fileSend struct {
	file    *os.File // keeps the descriptor open
	fd      int
	offset  int64
	left    int64
	copying bool // sendfile(2) cannot read this file
}

// setup is what only few sockets have.
type setup struct {
	listener *sys.Listener
	options  sys.SocketOptions // a listener's, for sockets that do not inherit them
	remote   *sys.Sockaddr     // a connecting socket's
	bound    bool              // a connecting socket, to a local address of the caller's choice
}

func (s *socket) has(op operation) bool { return s.flags&(1<<op) != 0 }

func (s *socket) is(flag uint32) bool { return s.flags&flag != 0 }

func (s *socket) handle() transport.Handle {
	return transport.Handle(s.generation)<<32 | transport.Handle(s.number)
}

// breaks remembers the error that broke a connection. The kernel tells it once, to whichever call comes first: a Recv
// after a failed Send would see a clean end of file. EPIPE only says that there is nobody to send to; what was
// received, perhaps a FIN, stays as it is.
func (s *socket) breaks(errno syscall.Errno) {
	if s.broken == 0 && errno != syscall.EPIPE {
		s.broken = uint32(errno)
	}
}

const (
	chunkShift = 6
	chunkSize  = 1 << chunkShift // sockets of 128 bytes: 8 KiB, which Go aligns to cache lines
	maxSockets = 1 << 28
)

// table holds the sockets by slot.
type table struct {
	chunks []*[chunkSize]socket
	free   uint32 // first free slot, plus one
	used   uint32 // slots ever used
	open   int
}

func (t *table) at(number uint32) *socket {
	return &t.chunks[number>>chunkShift][number%chunkSize]
}

// lookup returns the socket of a handle, nil for a stale or invented one.
func (t *table) lookup(h transport.Handle) *socket {
	number := uint32(h)
	if number >= t.used {
		return nil
	}
	s := t.at(number)
	if s.generation != uint32(h>>32) || !s.is(flagOpen) {
		return nil
	}
	return s
}

// add returns a slot for fd, nil when 2^28 are in use.
func (t *table) add(fd int, flags uint32) *socket {
	var s *socket
	switch {
	case t.free != 0:
		s = t.at(t.free - 1)
		t.free = s.free
	case t.used == maxSockets:
		return nil
	default:
		if t.used%chunkSize == 0 {
			t.chunks = append(t.chunks, new([chunkSize]socket))
		}
		s = t.at(t.used)
		s.number, s.generation = t.used, 1
		t.used++
	}
	s.fd = int32(fd)
	s.flags = s.flags&listFlags | flags | flagOpen
	t.open++
	return s
}

// remove frees a slot on which no operation is in progress and makes its handle stale.
func (t *table) remove(s *socket) {
	generation := s.generation + 1
	if generation == 0 { // no handle is zero
		generation = 1
	}
	*s = socket{fd: -1, number: s.number, generation: generation, flags: s.flags & listFlags, free: t.free}
	t.free = s.number + 1
	t.open--
}

// begin puts an operation in progress.
func (s *socket) begin(op operation, token transport.Token) {
	s.tokens[op] = token
	s.flags |= 1 << op
}

// end takes an operation out of progress and returns its token.
func (s *socket) end(op operation) transport.Token {
	s.flags &^= 1 << op
	return s.tokens[op]
}
