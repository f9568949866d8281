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
	limit      int    // Recv: bytes still to deliver

	tokens [operations]transport.Token
	chain  [operations]uint32 // table.buckets: the next operation with the same hash
	free   uint32             // the next free slot, plus one

	bufs []*buffer.Buf // Send: what is left, bufs[0] without its first offset bytes
	off  int
	file *fileSend // SendFile
	more *setup    // listeners and connecting sockets

	_ [8]byte
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
	remote   *sys.Sockaddr     // a connecting socket's; nil when it cannot meet itself
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
	maxSockets = 1 << 28         // so that slot and operation fit into 32 bits with room to spare
	minBuckets = 64
)

// table holds the sockets by slot, and the operations in progress by token: Cancel names nothing else. Its index chains
// operations inside the sockets, so that it never allocates but to grow.
type table struct {
	chunks  []*[chunkSize]socket
	free    uint32 // first free slot, plus one
	used    uint32 // slots ever used
	open    int
	buckets []uint32 // hash → 1 + slot*operations + operation, or 0; their number is a power of two
	shift   uint8    // 64 - log2(len(buckets))
}

func newTable() table {
	var t table
	t.rehash(minBuckets)
	return t
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
			t.grow()
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
func (t *table) begin(s *socket, op operation, token transport.Token) {
	bucket := &t.buckets[t.hash(token)]
	s.tokens[op], s.chain[op] = token, *bucket
	*bucket = 1 + s.number*uint32(operations) + uint32(op)
	s.flags |= 1 << op
}

// end takes an operation out of progress and returns its token.
func (t *table) end(s *socket, op operation) transport.Token {
	token := s.tokens[op]
	id := 1 + s.number*uint32(operations) + uint32(op)
	link := &t.buckets[t.hash(token)]
	for *link != id {
		other, otherOp := t.operation(*link)
		link = &other.chain[otherOp]
	}
	*link = s.chain[op]
	s.flags &^= 1 << op
	return token
}

// find returns the operation in progress that has a token; nil when there is none.
func (t *table) find(token transport.Token) (*socket, operation) {
	for id := t.buckets[t.hash(token)]; id != 0; {
		s, op := t.operation(id)
		if s.tokens[op] == token {
			return s, op
		}
		id = s.chain[op]
	}
	return nil, 0
}

func (t *table) operation(id uint32) (*socket, operation) {
	return t.at((id - 1) / uint32(operations)), operation((id - 1) % uint32(operations))
}

// hash is Fibonacci hashing: tokens are small numbers packed together.
func (t *table) hash(token transport.Token) uint64 {
	return uint64(token) * 0x9E3779B97F4A7C15 >> t.shift
}

// grow makes room for another chunk of sockets and keeps at least two buckets for each.
func (t *table) grow() {
	t.chunks = append(t.chunks, new([chunkSize]socket))
	if want := 2 * chunkSize * len(t.chunks); len(t.buckets) < want {
		t.rehash(want)
	}
}

// rehash makes at least n buckets and puts every operation in progress into its new one.
func (t *table) rehash(n int) {
	size, shift := 1, uint8(64)
	for size < n {
		size, shift = size*2, shift-1
	}
	t.buckets, t.shift = make([]uint32, size), shift
	for number := range t.used {
		s := t.at(number)
		for op := range operations {
			if s.has(op) {
				t.begin(s, op, s.tokens[op])
			}
		}
	}
}
