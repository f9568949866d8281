package epoll

import (
	"errors"
	"io"
	"syscall"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// What push returns besides the errors of the kernel. They never leave the transport.
var (
	errFull = errors.New("epoll: no room in the kernel")
	errTurn = errors.New("epoll: turn used up")
)

// submitSend sends what the kernel takes at once; the rest waits for room.
func (t *Transport) submitSend(s *socket, op *transport.Op) {
	if s.has(writing) {
		t.fail(op.Token, transport.ErrBusy)
		return
	}
	s.bufs = op.Bufs
	s.skipEmpty()
	t.startSend(s, op)
}

// SendNow sends what the kernel takes at once, without an operation. It borrows bufs until return.
func (t *Transport) SendNow(h transport.Handle, bufs []*buffer.Buf) (int, error) {
	s := t.sockets.lookup(h)
	switch {
	case t.closed:
		return 0, transport.ErrClosed
	case s == nil:
		return 0, transport.ErrStale
	case s.has(writing):
		return 0, transport.ErrBusy
	}
	s.bufs = bufs
	s.skipEmpty()
	n, err := t.push(s)
	s.bufs, s.off = nil, 0
	if err == errFull || err == errTurn {
		err = transport.ErrWouldBlock
	}
	return n, err
}

// submitSendFile is submitSend for a file.
func (t *Transport) submitSendFile(s *socket, op *transport.Op) {
	switch {
	case s.has(writing):
		t.fail(op.Token, transport.ErrBusy)
		return
	case op.File == nil || op.File.File == nil || op.File.Offset < 0 || op.File.Length < 0:
		t.fail(op.Token, syscall.EINVAL)
		return
	}
	f := op.File
	if f.Length > 0 {
		s.file = &fileSend{file: f.File, fd: int(f.File.Fd()), offset: f.Offset, left: f.Length}
	}
	t.startSend(s, op)
}

func (t *Transport) startSend(s *socket, op *transport.Op) {
	n, err := t.push(s)
	if op.NoWait && (err == errFull || err == errTurn) {
		err = transport.ErrWouldBlock
	}
	if err == errFull || err == errTurn {
		s.begin(writing, op.Token)
		t.keepSending(s, n, err)
		return
	}
	s.bufs, s.file, s.off = nil, nil, 0
	c := t.emit()
	c.Token, c.N, c.Err = op.Token, n, err
}

// continueSend goes on with the Send in progress.
func (t *Transport) continueSend(s *socket) {
	n, err := t.push(s)
	if err == errFull || err == errTurn {
		t.keepSending(s, n, err)
		return
	}
	t.finish(s, writing, n, err)
}

// keepSending reports progress and arranges for continueSend to be called again.
func (t *Transport) keepSending(s *socket, n int, err error) {
	if n > 0 {
		c := t.emit()
		c.Token, c.N, c.More = s.tokens[writing], n, true
	}
	if err == errFull {
		if !s.is(flagFull) {
			s.flags |= flagFull
			t.markDirty(s)
		}
		return
	}
	if s.is(flagFull) {
		s.flags &^= flagFull
		t.markDirty(s)
	}
	if !s.is(flagResuming) {
		s.flags |= flagResuming
		t.resuming = append(t.resuming, s.number)
	}
}

// resume goes on with Sends that used up their turn.
func (t *Transport) resume() {
	if len(t.resuming) == 0 {
		return
	}
	n := min(len(t.resuming), resumesPerWait)
	for i := range n {
		s := t.sockets.at(t.resuming[i])
		s.flags &^= flagResuming
		if s.has(writing) && !s.is(flagFull) {
			t.continueSend(s) // may append to resuming
		}
	}
	t.resuming = t.resuming[:copy(t.resuming, t.resuming[n:])]
}

// push sends what is left and returns how many bytes the kernel took. errFull: it takes no more now; errTurn: it took
// SendBytesPerTurn.
func (t *Transport) push(s *socket) (sent int, err error) {
	for len(s.bufs) > 0 || s.file != nil {
		if sent >= t.cfg.SendBytesPerTurn {
			return sent, errTurn
		}
		var n int
		t.counters.Sends++
		if s.file != nil {
			n, err = t.pushFile(s, t.cfg.SendBytesPerTurn-sent)
		} else {
			n, err = t.pushBufs(s, t.cfg.SendBytesPerTurn-sent)
		}
		sent += n
		t.stats.Sent += uint64(n)
		if err == syscall.EAGAIN {
			err = errFull
		}
		if err != nil {
			if errno, ok := err.(syscall.Errno); ok {
				s.breaks(errno)
			}
			return sent, err
		}
	}
	return sent, nil
}

// pushBufs makes one send call for at most limit bytes. A short send means that the socket's buffer is full; asking
// once more would only hear EAGAIN.
func (t *Transport) pushBufs(s *socket, limit int) (n int, err error) {
	var errno syscall.Errno
	wanted := 0
	if len(s.bufs) == 1 {
		p := s.bufs[0].Bytes()[s.off:]
		p = p[:min(len(p), limit)]
		wanted = len(p)
		n, errno = sys.Send(int(s.fd), p)
	} else {
		t.fill(s, limit)
		wanted = t.vector.Bytes()
		n, errno = t.vector.Send(int(s.fd))
	}
	if errno != 0 {
		return 0, errno
	}
	s.sent(n)
	if n < wanted {
		t.stats.ShortSends++
		return n, errFull
	}
	return n, nil
}

// fill puts at most limit bytes of what is left into the vector.
func (t *Transport) fill(s *socket, limit int) {
	off := s.off
	for _, b := range s.bufs {
		p := b.Bytes()[off:]
		off = 0
		if len(p) == 0 {
			continue
		}
		left := limit - t.vector.Bytes()
		if left == 0 || t.vector.Full() {
			return
		}
		t.vector.Add(p[:min(len(p), left)])
	}
}

// sent consumes n bytes that were sent, and what is empty behind them.
func (s *socket) sent(n int) {
	for n > 0 {
		left := s.bufs[0].Len() - s.off
		if n < left {
			s.off += n
			return
		}
		n -= left
		s.bufs, s.off = s.bufs[1:], 0
	}
	s.skipEmpty()
}

func (s *socket) skipEmpty() {
	for len(s.bufs) > 0 && s.bufs[0].Len() == s.off {
		s.bufs, s.off = s.bufs[1:], 0
	}
}

// pushFile makes one sendfile call for at most limit bytes, or reads and sends a block when the kernel cannot send from
// such a file. Unlike send's, a short count need not mean that the socket is full.
func (t *Transport) pushFile(s *socket, limit int) (n int, err error) {
	f := s.file
	wanted := int(min(f.left, int64(limit)))
	var errno syscall.Errno
	if !f.copying {
		n, errno = sys.SendFile(int(s.fd), f.fd, f.offset, wanted)
		if cannotSendFile(errno) {
			f.copying = true
		}
		t.stats.FileSent += uint64(n)
	}
	if f.copying {
		n, wanted, errno = t.copyFile(s, wanted)
	}
	switch {
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.ErrUnexpectedEOF
	case n < wanted:
		t.stats.ShortSends++
	}
	f.offset += int64(n)
	f.left -= int64(n)
	if f.left == 0 {
		s.file = nil
	}
	return n, nil
}

// cannotSendFile reports whether sendfile failed because of the kind of file: files of some file systems cannot be
// spliced.
func cannotSendFile(errno syscall.Errno) bool {
	return errno == syscall.EINVAL || errno == syscall.ENOSYS || errno == syscall.EOPNOTSUPP || errno == syscall.EPERM
}

// copyFile sends through a receive block. What the kernel does not take is read again next time.
func (t *Transport) copyFile(s *socket, limit int) (n, wanted int, errno syscall.Errno) {
	mem := t.blocks.next()
	read, errno := sys.ReadFile(s.file.fd, mem[:min(len(mem), limit)], s.file.offset)
	if read <= 0 {
		return 0, 0, errno
	}
	n, errno = sys.Send(int(s.fd), mem[:read])
	return n, read, errno
}
