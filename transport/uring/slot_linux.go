package uring

import (
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// kind says what an entry in the ring is for; it is the top byte of its user data.
type kind uint8

const (
	kindNone kind = iota
	kindRecv
	kindSend // also the parts of a file that are sent like Bufs
	kindAccept
	kindConnect
	kindWatch
	kindClose
	kindFill   // a file's bytes on their way into a pipe
	kindRead   // a file's bytes on their way into a Buf
	kindDrain  // waiting until the socket takes a pipe's bytes
	kindCancel // ends an operation; its own result says nothing new
	kindWake
)

// stage says where an operation is.
//
//	idle → queued → armed → idle      the usual way
//	        ↑ ↑       │
//	        │ └───────┤               it ended too early and goes on
//	        └─ parked ┘               it found no block
type stage uint8

const (
	idle   stage = iota
	queued       // waits for its entry
	armed        // the kernel has it
	parked       // a receive that waits for blocks
)

// state says what a slot is.
type state uint8

const (
	stateFree state = iota
	stateConnecting
	stateOpen
	stateListening
	stateClosing
)

// operation is what every operation of a slot has.
type operation struct {
	token    transport.Token
	stage    stage
	canceled bool // Cancel was submitted
}

// active reports whether there is an operation that has not ended.
func (o *operation) active() bool { return o.stage != idle }

// receive is the Recv of a slot.
type receive struct {
	operation
	multishot bool   // as armed
	polled    bool   // as armed: it waits for data, which is then received with a call
	fed       bool   // has had a block since it was parked
	used      uint32 // blocks.used when it was armed with a block to receive into; else its complement
	left      int    // bytes to come
}

// sending is the Send or SendFile of a slot.
type sending struct {
	operation
	skipped  bool          // as armed: without completion when all was taken
	plain    bool          // the next entry waits for room in the kernel
	noWait   bool          // Op.NoWait
	bufs     []*buffer.Buf // what is borrowed; bufs[next:] is left
	next     int           // the Buf to go on with
	offset   int           // bytes of it that are sent
	chunk    int           // bytes of the entry
	reported int           // bytes sent that no completion has told of
	file     *fileSend     // SendFile
}

// slot is a socket or a listener. Its memory never moves.
type slot struct {
	index   uint32
	gen     uint32 // below 2^24, never zero
	fd      int32
	kernel  int32 // entries in the kernel whose last completion was not seen
	state   state
	eof     bool // a Recv has delivered io.EOF
	fin     bool // CloseWrite waits for the Send before it
	reset   bool // Close with RST
	hangup  bool // the WatchClose has seen what it waits for and is being cancelled
	closing stage

	recv  receive
	send  *sending // slots.idle while there is none
	watch operation

	finToken   transport.Token // CloseWrite's
	closeToken transport.Token // Close's
	listener   *listener       // of a listener
	dial       *dialing        // while connecting
}

// listener is what only listeners have.
type listener struct {
	operation       // Accept: armed while the kernel has entries of it
	entries   int   // accepts in the kernel
	most      int   // of them
	left      int   // connections to come; zero without limit
	due       bool  // work to arm more is on its way
	failure   error // what ends it once all entries have ended
	socket    *sys.Listener
	options   sys.SocketOptions
}

// dialing is what only connecting sockets have.
type dialing struct {
	operation
	to    sys.Sockaddr
	bound bool // to a local address of the caller's choice
}

const (
	chunkShift = 7
	chunkSlots = 1 << chunkShift
	genMask    = 1<<24 - 1
	maxSlots   = 1 << 24
)

// slots are the sockets of a transport: in chunks, so that they stay where they are while their number grows.
type slots struct {
	chunks []*[chunkSlots]slot
	free   []uint32 // last in, first out
	open   int

	idle  sending    // of slots that send nothing; never written to
	spare []*sending // last in, first out
}

// maxSpare is how many sendings are kept for later.
const maxSpare = 1024

// sends gives s a sending of its own.
func (ss *slots) sends(s *slot) *sending {
	if last := len(ss.spare) - 1; last >= 0 {
		s.send = ss.spare[last]
		ss.spare = ss.spare[:last]
	} else {
		s.send = &sending{}
	}
	return s.send
}

// sent takes it back.
func (ss *slots) sent(s *slot) {
	o := s.send
	s.send = &ss.idle
	*o = sending{}
	if len(ss.spare) < maxSpare {
		ss.spare = append(ss.spare, o)
	}
}

// at returns the slot with an index that was handed out.
func (ss *slots) at(index uint32) *slot {
	return &ss.chunks[index>>chunkShift][index&(chunkSlots-1)]
}

// len is the number of slots, free ones included.
func (ss *slots) len() uint32 { return uint32(len(ss.chunks)) << chunkShift }

// take returns a free slot for a descriptor, or nil when there are too many.
func (ss *slots) take(fd int, st state) *slot {
	if len(ss.free) == 0 {
		if ss.len() == maxSlots {
			return nil
		}
		base := ss.len()
		chunk := new([chunkSlots]slot)
		ss.chunks = append(ss.chunks, chunk)
		for i := chunkSlots - 1; i >= 0; i-- {
			chunk[i] = slot{index: base + uint32(i), gen: 1, fd: -1, send: &ss.idle}
			ss.free = append(ss.free, base+uint32(i))
		}
	}
	index := ss.free[len(ss.free)-1]
	ss.free = ss.free[:len(ss.free)-1]
	s := ss.at(index)
	s.fd, s.state = int32(fd), st
	ss.open++
	return s
}

// give frees a slot: nothing of it is in the kernel.
func (ss *slots) give(s *slot) {
	gen := (s.gen + 1) & genMask
	if gen == 0 {
		gen = 1
	}
	*s = slot{index: s.index, gen: gen, fd: -1, send: &ss.idle}
	ss.free = append(ss.free, s.index)
	ss.open--
}

// handle is the slot's name outside.
func (s *slot) handle() transport.Handle {
	return transport.Handle(s.gen)<<32 | transport.Handle(s.index)
}

// find returns the slot of a handle that can be used, or nil.
func (ss *slots) find(h transport.Handle) *slot {
	index := uint32(h)
	if index >= ss.len() {
		return nil
	}
	s := ss.at(index)
	if uint64(s.gen) != uint64(h>>32) || (s.state != stateOpen && s.state != stateListening) {
		return nil
	}
	return s
}

// data is the user data of an entry of the slot.
func (s *slot) data(k kind) uint64 {
	return uint64(k)<<56 | uint64(s.gen)<<32 | uint64(s.index)
}

// owner returns the slot that user data belongs to, or nil when it was freed since.
func (ss *slots) owner(data uint64) *slot {
	index := uint32(data)
	if index >= ss.len() {
		return nil
	}
	s := ss.at(index)
	if s.gen != uint32(data>>32)&genMask || s.state == stateFree {
		return nil
	}
	return s
}

// operationOf returns the slot's operation of a kind, or nil.
func (s *slot) operationOf(k kind) *operation {
	switch k {
	case kindRecv:
		return &s.recv.operation
	case kindSend, kindFill, kindRead, kindDrain:
		return &s.send.operation
	case kindWatch:
		return &s.watch
	case kindAccept:
		if s.listener != nil {
			return &s.listener.operation
		}
	case kindConnect:
		if s.dial != nil {
			return &s.dial.operation
		}
	}
	return nil
}
