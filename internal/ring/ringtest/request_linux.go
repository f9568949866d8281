package ringtest

import (
	"syscall"

	abi "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
)

const (
	sqeHardLink    = 1 << 3
	sqeSkipSuccess = 1 << 6
	cqeBuffer      = ring.FlagBuffer
	cqeMore        = ring.FlagMore

	recvMultishot  = 1 << 1
	sendVectorized = 1 << 5

	acceptPollFirst = 1 << 2
	pollMultishot   = 1 << 0
	cancelAll       = 1 << 0
	cancelFD        = 1 << 1
	cancelAny       = 1 << 2

	// unmasked is what a poll reports unasked: IO_POLL_UNMASK in io_uring/poll.c.
	unmasked = unix.POLLERR | unix.POLLHUP | unix.POLLNVAL | unix.POLLRDHUP
	rounds   = 32 // completions that a multishot operation posts at a time: MULTISHOT_MAX_RETRY in io_uring/net.c
)

// progress is how far a request is.
type progress uint8

const (
	fresh   progress = iota
	waiting          // armed
	dying            // a cancellation came too late: it ends soon
	ended
)

// request is one entry from its submission to its last completion.
type request struct {
	k     *Kernel
	e     ring.Entry
	next  *request // begins when this one has ended
	state progress
	file  int   // the request's own reference to the descriptor, as a struct file is
	left  int   // of a limited receive
	mask  int16 // what a poll has reported
	begun bool  // a connect or accept was tried
	vs    []vector
	total int // bytes of vs
}

// begin submits the request.
func (r *request) begin() {
	r.file = -1
	r.left = int(r.e.Optlen)
	if r.e.Opcode == abi.IORING_OP_NOP || r.e.Opcode == abi.IORING_OP_ASYNC_CANCEL ||
		r.e.Opcode == abi.IORING_OP_CLOSE {
		r.run()
		return
	}
	fd, err := unix.FcntlInt(uintptr(r.e.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		r.end(-int32(err.(syscall.Errno)), 0)
		return
	}
	r.file = fd
	r.state = waiting
	r.k.pending = append(r.k.pending, r)
	r.run()
}

// run goes on with the request.
func (r *request) run() {
	switch r.e.Opcode {
	case abi.IORING_OP_NOP:
		r.end(0, 0)
	case abi.IORING_OP_RECV:
		r.recv()
	case abi.IORING_OP_SEND, abi.IORING_OP_SENDMSG:
		r.send()
	case abi.IORING_OP_ACCEPT:
		r.accept()
	case abi.IORING_OP_CONNECT:
		r.connect()
	case abi.IORING_OP_POLL_ADD:
		r.poll()
	case abi.IORING_OP_SPLICE:
		r.splice()
	case abi.IORING_OP_READ:
		r.read()
	case abi.IORING_OP_CLOSE:
		r.close()
	case abi.IORING_OP_ASYNC_CANCEL:
		r.cancel()
	default:
		r.end(-int32(unix.EINVAL), 0)
	}
}

// interest is what has to happen for the request to go on.
func (r *request) interest() int16 {
	switch r.e.Opcode {
	case abi.IORING_OP_SEND, abi.IORING_OP_SENDMSG, abi.IORING_OP_CONNECT:
		return unix.POLLOUT
	case abi.IORING_OP_POLL_ADD:
		return int16(r.e.OpFlags) &^ r.mask
	}
	return unix.POLLIN
}

// post posts a completion that is not the last. It returns false when the queue has no room: then the last one must
// carry the result, as in the kernel.
func (r *request) post(result int32, flags uint32) bool {
	k := r.k
	if k.space() == 0 || len(k.kept) > 0 || k.fails(k.script.EndMultishot, &k.faults.EndedMultishots) {
		return false
	}
	r.emit(posted{data: r.e.UserData, result: result, flags: flags | cqeMore})
	return true
}

// end posts the last completion.
func (r *request) end(result int32, flags uint32) {
	k := r.k
	r.state = ended
	for i, p := range k.pending {
		if p == r {
			k.pending = append(k.pending[:i:i], k.pending[i+1:]...)
			break
		}
	}
	r.release()
	if r.e.Flags&sqeSkipSuccess == 0 || result < 0 || r.short(result) {
		r.emit(posted{data: r.e.UserData, result: result, flags: flags})
	}
	if r.next != nil {
		r.next.begin()
	}
}

// short reports whether a send with MSG_WAITALL took less than all, which makes it a failure for links and skips.
func (r *request) short(result int32) bool {
	switch r.e.Opcode {
	case abi.IORING_OP_SEND, abi.IORING_OP_SENDMSG:
		return r.e.OpFlags&unix.MSG_WAITALL != 0 && int(result) < r.size()
	}
	return false
}

// emit brings a completion out, perhaps late. What a send that must not wait has to say is never late: the kernel
// carries it out while it takes the entry.
func (r *request) emit(p posted) {
	k := r.k
	sync := (r.e.Opcode == abi.IORING_OP_SEND || r.e.Opcode == abi.IORING_OP_SENDMSG) &&
		r.e.OpFlags&unix.MSG_DONTWAIT != 0
	if !sync && (r.behind() || k.fails(k.script.Late, &k.faults.Late)) {
		k.ready = append(k.ready, p)
		return
	}
	k.place(p)
}

// behind reports whether an earlier completion of the request is still to come: they keep their order. So does the
// result of a cancellation, which comes after the completion of what it did not find any more.
func (r *request) behind() bool {
	for _, p := range r.k.ready {
		if p.data == r.e.UserData || r.e.Opcode == abi.IORING_OP_ASYNC_CANCEL && p.data == r.e.Address {
			return true
		}
	}
	return false
}

// release gives the request's reference to its file back.
func (r *request) release() {
	if r.file >= 0 {
		_ = unix.Close(r.file)
		r.file = -1
	}
}

func (r *request) close() {
	if err := unix.Close(int(r.e.FD)); err != nil {
		r.end(-int32(err.(syscall.Errno)), 0)
		return
	}
	r.end(0, 0)
}

// cancel ends other requests, or comes too late for them. Those that it finds end with the next work, as with
// DEFER_TASKRUN; until then another cancellation finds them, too. With ALL it returns how many it found.
func (r *request) cancel() {
	k := r.k
	all := r.e.OpFlags&(cancelAll|cancelAny) != 0
	found, already := 0, 0
	for _, p := range append([]*request(nil), k.pending...) {
		if p == r || p.state == ended || !r.matches(p) {
			continue
		}
		if p.state == waiting && k.fails(k.script.CancelTooLate, &k.faults.LateCancels) {
			already++
			p.tooLate()
			continue
		}
		found++
		p.state = dying
		if !all {
			break
		}
	}
	switch {
	case all:
		r.end(int32(found+already), 0)
	case found > 0:
		r.end(0, 0)
	case already > 0:
		r.end(-int32(unix.EALREADY), 0)
	default:
		r.end(-int32(unix.ENOENT), 0)
	}
}

// tooLate lets a request go on although somebody wants it to end: it does what it can at once, and if it then still
// waits, it ends after all, with the next Enter.
func (r *request) tooLate() {
	r.run()
	if r.state == waiting {
		r.state = dying
	}
}

func (r *request) matches(p *request) bool {
	switch {
	case r.e.OpFlags&cancelAny != 0:
		return true
	case r.e.OpFlags&cancelFD != 0:
		return sameFile(p.file, int(r.e.FD))
	}
	return p.e.UserData == r.e.Address
}

// sameFile reports whether two descriptors are of the same socket.
func sameFile(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}
