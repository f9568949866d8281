package uring

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/transport"
)

const (
	pipeBytes = 64 << 10 // what a pipe holds, pipe(7)
	copyBytes = 64 << 10 // what is read at a time where splice(2) does not work
	maxPipes  = 16       // idle ones that are kept
)

// fileSend is what only a SendFile has. A worker thread of the kernel splices a piece of the file into a pipe, so that
// waiting for a disk holds up nobody; the loop splices it from there into the socket, which never waits, and polls the
// socket when it is full.
//
//	fill → move → fill …          move → drain → move …          read → send → read …
type fileSend struct {
	fd     int32
	offset int64
	left   int64
	at     kind   // of the entry in the kernel, or the next
	pipe   [2]int // valid with held
	held   bool
	inPipe int
	copied *buffer.Buf    // owned; what was read
	one    [1]*buffer.Buf // sending.bufs
	source interface{ Fd() uintptr }
}

func (t *Transport) submitFile(s *slot, op *transport.Op) {
	f := op.File
	switch {
	case s.state == stateListening || f == nil || f.File == nil || f.Offset < 0 || f.Length < 0:
		t.end(op.Token, invalid)
		return
	case s.send.active():
		t.end(op.Token, transport.ErrBusy)
		return
	}
	t.slots.sends(s).file = &fileSend{fd: int32(f.File.Fd()), offset: f.Offset, left: f.Length, source: f.File}
	t.start(s, &s.send.operation, kindFill, op.Token)
}

// issueFile makes the entry for the next step. kindSend is not among them: what was read is sent like Bufs.
func (t *Transport) issueFile(s *slot, k kind) bool {
	o := s.send
	f := o.file
	if o.stage != queued || f == nil {
		return true
	}
	if f.left == 0 && f.inPipe == 0 {
		t.finishSending(s, nil)
		return true
	}
	if s.state == stateClosing {
		t.finishSending(s, transport.ErrCanceled)
		return true
	}
	if k == kindFill && !f.held && !t.takePipe(f) {
		k = kindRead
	}
	if k == kindRead && f.copied == nil {
		f.copied = t.pool.Get(copyBytes)
	}
	e := t.entry(k, s)
	if e == nil {
		return false
	}
	switch k {
	case kindFill:
		ring.Splice(e, f.fd, f.offset, int32(f.pipe[1]), uint32(min(f.left, pipeBytes)))
	case kindRead:
		p := f.copied.Tail()
		ring.ReadAt(e, f.fd, p[:min(f.left, int64(len(p)))], f.offset)
	case kindDrain:
		ring.Poll(e, s.fd, unix.POLLOUT, false)
	}
	o.stage, f.at = armed, k
	return true
}

// finishFile deals with the completion of a step.
func (t *Transport) finishFile(s *slot, k kind, e *event) {
	o := s.send
	f := o.file
	if o.stage != armed || f == nil || f.at != k {
		t.stats.Stale++
		return
	}
	if e.result < 0 {
		t.failFile(s, k, errnoOf(e.result))
		return
	}
	switch {
	case k == kindDrain:
		t.movePipe(s)
	case e.result == 0:
		t.finishSending(s, io.ErrUnexpectedEOF)
	case k == kindFill:
		f.take(int(e.result))
		f.inPipe = int(e.result)
		t.counters.Splices++
		t.movePipe(s)
	case !t.goesOn(s, &o.operation):
		t.finishSending(s, transport.ErrCanceled)
	default:
		f.take(int(e.result))
		f.copied.Extend(int(e.result))
		f.one[0] = f.copied
		o.bufs, o.next, o.offset, o.plain = f.one[:], 0, 0, false
		f.at = kindSend
		t.counters.FileReads++
		t.queue(s, &o.operation, kindSend)
	}
}

// failFile deals with a step that failed. A file that can not be spliced is read.
func (t *Transport) failFile(s *slot, k kind, errno syscall.Errno) {
	o := s.send
	switch {
	case (errno == unix.EINTR || errno == unix.EAGAIN) && t.goesOn(s, &o.operation):
		t.queue(s, &o.operation, k)
	case errno == unix.ECANCELED || errno == unix.EINTR && !t.goesOn(s, &o.operation):
		t.finishSending(s, transport.ErrCanceled)
	case k == kindFill && (errno == unix.EINVAL || errno == unix.ENOSYS || errno == unix.EOPNOTSUPP):
		t.queue(s, &o.operation, kindRead)
	default:
		t.finishSending(s, errno)
	}
}

// movePipe splices what is in the pipe into the socket, which is non-blocking.
func (t *Transport) movePipe(s *slot) {
	o := s.send
	f := o.file
	for f.inPipe > 0 {
		if !t.goesOn(s, &o.operation) {
			t.finishSending(s, transport.ErrCanceled)
			return
		}
		n, err := unix.Splice(f.pipe[0], nil, int(s.fd), nil, f.inPipe, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch {
		case n > 0:
			f.inPipe -= int(n)
			o.reported += int(n)
			t.stats.Sent += uint64(n)
			t.stats.FileSent += uint64(n)
		case err == unix.EAGAIN:
			t.progress(o)
			t.queue(s, &o.operation, kindDrain)
			return
		case err == unix.EINTR:
		case err != nil:
			t.finishSending(s, err)
			return
		default:
			t.finishSending(s, unix.EPIPE)
			return
		}
	}
	t.nextPiece(s, kindFill)
}

// sentCopy goes on after a piece that was read is sent.
func (t *Transport) sentCopy(s *slot) {
	f := s.send.file
	f.copied.Release()
	f.copied = nil
	t.nextPiece(s, kindRead)
}

func (t *Transport) nextPiece(s *slot, k kind) {
	o := s.send
	if o.file.left == 0 {
		t.finishSending(s, nil)
		return
	}
	if !t.goesOn(s, &o.operation) {
		t.finishSending(s, transport.ErrCanceled)
		return
	}
	t.progress(o)
	t.queue(s, &o.operation, k)
}

// take notes that n bytes of the file are on their way.
func (f *fileSend) take(n int) {
	f.offset += int64(n)
	f.left -= int64(n)
}

// drop gives back what a SendFile has. A pipe with bytes in it is of no use to others.
func (f *fileSend) drop(t *Transport) {
	if f.copied != nil {
		f.copied.Release()
		f.copied = nil
	}
	if !f.held {
		return
	}
	f.held = false
	if f.inPipe > 0 || len(t.pipes) == maxPipes || t.closed {
		closePipe(f.pipe)
		return
	}
	t.pipes = append(t.pipes, f.pipe)
}

// takePipe gets a pipe. Without one, for lack of descriptors, the file is read.
func (t *Transport) takePipe(f *fileSend) bool {
	if n := len(t.pipes); n > 0 {
		f.pipe, f.held = t.pipes[n-1], true
		t.pipes = t.pipes[:n-1]
		return true
	}
	var p [2]int
	if unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return false
	}
	f.pipe, f.held = p, true
	return true
}
