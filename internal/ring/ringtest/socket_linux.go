package ringtest

import (
	"encoding/binary"
	"math/bits"
	"syscall"

	abi "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// group is a buffer ring: entries of struct io_uring_buf that the other side fills.
type group struct {
	address uintptr
	entries uint16
	head    uint16
}

const (
	tailOffset       = 14
	bufferEntryBytes = 16
)

// block is struct io_uring_buf.
type block struct {
	address uint64
	length  uint32
	id      uint16
}

// RegisterBuffers implements ring.Kernel.
func (k *Kernel) RegisterBuffers(id uint16, address uintptr, entries uint32) syscall.Errno {
	if k.groups[id] != nil {
		return unix.EEXIST
	}
	k.groups[id] = &group{address: address, entries: uint16(entries)}
	return 0
}

// UnregisterBuffers implements ring.Kernel.
func (k *Kernel) UnregisterBuffers(id uint16) syscall.Errno {
	delete(k.groups, id)
	return 0
}

// load copies memory of this process by its number: neither vet nor checkptr can follow a pointer through an entry.
func load(address uintptr, n int) []byte {
	p := make([]byte, n)
	if n == 0 {
		return p
	}
	local := []unix.Iovec{{Base: &p[0]}}
	local[0].SetLen(n)
	done, err := unix.ProcessVMReadv(unix.Getpid(), local, []unix.RemoteIovec{{Base: address, Len: n}}, 0)
	if err != nil || done != n {
		panic("ringtest: an entry refers to memory that can not be read")
	}
	return p
}

const wordBytes = bits.UintSize / 8

// number reads the i-th word of p.
func number(p []byte, i int) uintptr {
	if p = p[i*wordBytes:]; wordBytes == 8 {
		return uintptr(binary.NativeEndian.Uint64(p))
	}
	return uintptr(binary.NativeEndian.Uint32(p))
}

// peek returns the next block of a group; ok is false when there is none.
func (g *group) peek() (b block, ok bool) {
	if binary.NativeEndian.Uint16(load(g.address+tailOffset, 2)) == g.head {
		return block{}, false
	}
	p := load(g.address+uintptr(g.head&(g.entries-1))*bufferEntryBytes, bufferEntryBytes)
	return block{binary.NativeEndian.Uint64(p), binary.NativeEndian.Uint32(p[8:]), binary.NativeEndian.Uint16(p[12:])},
		true
}

// call makes a system call that does not block, with addresses as numbers, and returns its result as an entry's.
func call(trap, a, b, c, d, e uintptr) int32 {
	for {
		n, _, errno := syscall.Syscall6(trap, a, b, c, d, e, 0)
		switch errno {
		case 0:
			return int32(n)
		case unix.EINTR:
			continue
		}
		return -int32(errno)
	}
}

const again = -int32(unix.EAGAIN)

func (r *request) recv() {
	k := r.k
	multishot := r.e.Ioprio&recvMultishot != 0
	if k.script.LacksLimits && r.e.Optlen != 0 || !multishot && r.e.Optlen != 0 {
		r.end(-int32(unix.EINVAL), 0)
		return
	}
	g := k.groups[r.e.Group]
	for range rounds {
		b, ok := block{}, false
		if g != nil {
			b, ok = g.peek()
		}
		if !ok || k.fails(k.script.NoBuffers, &k.faults.NoBuffers) {
			r.end(-int32(unix.ENOBUFS), 0)
			return
		}
		size := min(b.length, r.e.Length)
		n := call(unix.SYS_RECVFROM, uintptr(r.file), uintptr(b.address), uintptr(size), unix.MSG_DONTWAIT, 0)
		if n == again {
			return
		}
		if n <= 0 {
			r.end(n, 0)
			return
		}
		g.head++
		flags := uint32(b.id)<<16 | cqeBuffer
		r.left -= int(n)
		if !multishot || r.e.Optlen != 0 && r.left <= 0 || !r.post(n, flags) {
			r.end(n, flags)
			return
		}
	}
}

// vector is struct iovec.
type vector struct{ base, length uintptr }

// vectors returns what a send sends.
func (r *request) vectors() []vector {
	switch {
	case r.e.Opcode == abi.IORING_OP_SENDMSG:
		p := load(uintptr(r.e.Address), 4*wordBytes) // struct msghdr: name, its length, vectors, their number
		return loadVectors(number(p, 2), int(number(p, 3)))
	case r.e.Ioprio&sendVectorized != 0:
		return loadVectors(uintptr(r.e.Address), int(r.e.Length))
	}
	return []vector{{uintptr(r.e.Address), uintptr(r.e.Length)}}
}

func loadVectors(address uintptr, n int) []vector {
	vs := make([]vector, n)
	p := load(address, 2*n*wordBytes)
	for i := range vs {
		vs[i] = vector{number(p, 2*i), number(p, 2*i+1)}
	}
	return vs
}

// size is the number of bytes that a send sends.
func (r *request) size() int { return r.total }

func (r *request) send() {
	k := r.k
	if r.e.Ioprio&sendVectorized != 0 && k.script.LacksVectors {
		r.end(-int32(unix.EINVAL), 0)
		return
	}
	if r.vs == nil { // the vectors are free once the entry was taken
		r.vs = r.vectors()
		for _, v := range r.vs {
			r.total += int(v.length)
		}
	}
	now := r.e.OpFlags&unix.MSG_DONTWAIT != 0
	n := int32(0)
	most := r.total
	if k.fails(k.script.ShortSend, &k.faults.ShortSends) ||
		!now && k.fails(k.script.ShortPlainSend, &k.faults.ShortSends) {
		most = k.rng.IntN(r.total + 1)
	}
	if n = r.push(most); n == 0 {
		n = again
	}
	if n == again && !now {
		return // armed
	}
	r.end(n, 0)
}

// push sends at most n bytes.
func (r *request) push(n int) int32 {
	sent := 0
	for _, v := range r.vs {
		size := min(int(v.length), n-sent)
		if size <= 0 {
			continue
		}
		done := call(unix.SYS_SENDTO, uintptr(r.file), v.base, uintptr(size), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0)
		if done < 0 {
			if sent > 0 {
				break
			}
			return done
		}
		sent += int(done)
		if int(done) < size {
			break
		}
	}
	return int32(sent)
}

func (r *request) accept() {
	k := r.k
	pollFirst := r.e.Ioprio&acceptPollFirst != 0
	if pollFirst && k.script.LacksVectors { // a kernel as old as that
		r.end(-int32(unix.EINVAL), 0)
		return
	}
	// Once it waits, an accept is tried only when a connection is there: accept4(2) looks for a descriptor first and
	// would return EMFILE.
	if r.begun || pollFirst {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.file), Events: unix.POLLIN}}, 0); err != nil || n == 0 {
			return
		}
	}
	r.begun = true
	if k.fails(k.script.AcceptFails, &k.faults.AcceptFailures) {
		r.end(-int32(unix.EMFILE), 0)
		return
	}
	if n := call(unix.SYS_ACCEPT4, uintptr(r.file), 0, 0, uintptr(r.e.OpFlags), 0); n != again {
		r.end(n, 0)
	}
}

func (r *request) connect() {
	if !r.begun {
		r.begun = true
		n := call(unix.SYS_CONNECT, uintptr(r.file), uintptr(r.e.Address), uintptr(r.e.Offset), 0, 0)
		if n != -int32(unix.EINPROGRESS) {
			r.end(n, 0)
		}
		return
	}
	fds := []unix.PollFd{{Fd: int32(r.file), Events: unix.POLLOUT}}
	if n, err := unix.Poll(fds, 0); err != nil || n == 0 {
		return
	}
	errno, err := unix.GetsockoptInt(r.file, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		errno = int(err.(syscall.Errno))
	}
	r.end(-int32(errno), 0)
}

// poll reports what is there: once, or with multishot each time that something new is.
func (r *request) poll() {
	events := int16(r.e.OpFlags)
	if r.e.Length&pollMultishot != 0 && isEventFD(r.file) {
		r.pollEventFD()
		return
	}
	fds := []unix.PollFd{{Fd: int32(r.file), Events: events | unmasked}}
	if n, err := unix.Poll(fds, 0); err != nil || n == 0 {
		return
	}
	mask := fds[0].Revents
	if r.e.Length&pollMultishot == 0 {
		r.end(int32(mask), 0)
		return
	}
	if fresh := mask &^ r.mask; fresh != 0 {
		r.mask = mask
		if !r.post(int32(mask), 0) {
			r.end(int32(mask), 0)
		}
	}
}

// pollEventFD reports each write. Nobody else reads the eventfd, so reading tells of them.
func (r *request) pollEventFD() {
	var p [8]byte
	if n, err := unix.Read(r.file, p[:]); err != nil || n != len(p) {
		return
	}
	if !r.post(unix.POLLIN, 0) {
		r.end(unix.POLLIN, 0)
	}
}

func isEventFD(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == 0 // anonymous inodes have no type
}

func (r *request) splice() {
	k := r.k
	if k.fails(k.script.NoSplice, &k.faults.NoSplices) {
		r.end(-int32(unix.EINVAL), 0)
		return
	}
	offset := int64(r.e.Address)
	n, err := unix.Splice(int(r.e.Optlen), &offset, r.file, nil, int(r.e.Length), unix.SPLICE_F_NONBLOCK)
	if err != nil {
		r.end(-int32(err.(syscall.Errno)), 0)
		return
	}
	r.end(int32(n), 0)
}

func (r *request) read() {
	n := call(unix.SYS_PREAD64, uintptr(r.file), uintptr(r.e.Address), uintptr(r.e.Length), uintptr(r.e.Offset), 0)
	r.end(n, 0)
}
