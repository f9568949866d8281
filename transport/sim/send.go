package sim

import (
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// fileChunk is how much of a file is read at once.
const fileChunk = 64 << 10

// startSend starts a Send or SendFile.
func (e *endpoint) startSend(op transport.Op) {
	if !e.start(op, &e.send, stopSend) {
		return
	}
	o := e.send
	if op.Kind == transport.Send {
		for _, b := range op.Bufs {
			o.left += b.Len()
		}
	} else {
		o.left = int(op.File.Length)
	}
	if op.NoWait && op.Kind == transport.Send {
		e.sendNow(o)
		return
	}
	e.push()
}

// push lets the armed send write what there is room for.
func (e *endpoint) push() {
	o := e.send
	if o == nil || e.pushing {
		return
	}
	if err := e.sendError(); err != nil {
		e.endSend(o, err)
		return
	}
	for o.left > 0 && e.out.room() > 0 {
		cut, err := e.write(o)
		if err != nil {
			e.endSend(o, err)
			return
		}
		if cut && o.left > 0 {
			e.pushing = true
			e.w.at(e.w.delay(), func() {
				e.pushing = false
				if !e.closed {
					e.push()
				}
			})
			break
		}
	}
	if o.left == 0 {
		e.endSend(o, nil)
		return
	}
	e.t.stats.ShortSends++
	if o.unreported > 0 && !e.w.chance(e.w.cfg.Faults.QuietProgress) {
		n := o.unreported
		o.unreported = 0
		o.report(transport.Completion{N: n}, nil)
	}
}

// tellAfter is how long a send that was taken whole may be unsettled while nothing else happens.
const tellAfter = 5 * time.Millisecond

// sendNow sends what there is room for; the next Wait hands out the completion. Like that of a ring, it ends no Wait
// that sleeps, unless the send fell short.
func (e *endpoint) sendNow(o *operation) {
	err := e.sendAtOnce(o)
	e.send = nil
	o.forget()
	e.trace("send without waiting: %d bytes, %v", o.unreported, err)
	e.t.settled = append(e.t.settled, queued{c: transport.Completion{Token: o.op.Token, N: o.unreported, Err: err}})
	if len(e.t.settled) == 1 {
		e.t.tellBy = e.w.now + tellAfter
	}
	if err != nil || e.w.cfg.SendNow {
		e.t.tellBy = e.w.now
	}
	e.w.version.Add(1)
}

// sendAtOnce sends what there is room for.
func (e *endpoint) sendAtOnce(o *operation) error {
	err := e.sendError()
	for err == nil && o.left > 0 && e.out.room() > 0 {
		var cut bool
		if cut, err = e.write(o); cut {
			break
		}
	}
	if err == nil && o.left > 0 {
		err = transport.ErrWouldBlock
		e.t.stats.ShortSends++
	}
	return err
}

// SendNow sends what there is room for, without an operation, where Config.SendNow says so. It borrows bufs until
// return.
func (t *Transport) SendNow(h transport.Handle, bufs []*buffer.Buf) (int, error) {
	if !t.w.cfg.SendNow {
		return 0, transport.ErrNotNow
	}
	s := t.lookup(h)
	switch {
	case t.closed:
		return 0, transport.ErrClosed
	case s == nil:
		return 0, transport.ErrStale
	case s.l != nil:
		return 0, syscall.EINVAL
	case s.e.send != nil:
		return 0, transport.ErrBusy
	}
	o := &operation{op: transport.Op{Kind: transport.Send, Bufs: bufs}, t: t, e: s.e}
	for _, b := range bufs {
		o.left += b.Len()
	}
	err := s.e.sendAtOnce(o)
	s.e.trace("send now: %d bytes, %v", o.unreported, err)
	t.w.version.Add(1)
	return o.unreported, err
}

// sendError returns why nothing can be sent. The first to ask after a reset learns of it; later it is EPIPE, as in
// Linux.
func (e *endpoint) sendError() error {
	switch {
	case e.broken && !e.errTaken:
		e.errTaken = true
		return e.err
	case e.broken || e.out.finQueued:
		return syscall.EPIPE
	}
	return nil
}

// write writes one piece of what o has to send. It reports whether the piece was cut short for no reason.
func (e *endpoint) write(o *operation) (cut bool, err error) {
	var p []byte
	if o.op.Kind == transport.Send {
		p = o.nextPiece()
	} else if p, err = o.nextOfFile(min(o.left, e.out.room(), fileChunk)); err != nil {
		return false, err
	}
	n := min(len(p), e.out.room())
	if n > 1 && e.w.chance(e.w.cfg.Faults.ShortWrite) {
		n = e.w.some(n - 1)
		cut = true
	}
	e.out.write(p[:n])
	e.t.stats.Sent += uint64(n)
	if o.op.Kind == transport.Send {
		o.off += n
	} else {
		o.sent += int64(n)
		e.t.stats.FileSent += uint64(n)
	}
	o.left -= n
	o.unreported += n
	e.trace("%s %d, %d left", kindName(o.op.Kind), n, o.left)
	return cut, nil
}

// nextPiece returns bytes of the Buf that is being sent.
func (o *operation) nextPiece() []byte {
	for {
		p := o.op.Bufs[o.piece].Bytes()[o.off:]
		if len(p) > 0 {
			return p
		}
		o.piece++
		o.off = 0
	}
}

// nextOfFile reads at most n bytes of the file.
func (o *operation) nextOfFile(n int) ([]byte, error) {
	p := make([]byte, n)
	got, err := o.op.File.File.ReadAt(p, o.op.File.Offset+o.sent)
	if got > 0 {
		return p[:got], nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// endSend yields the last completion of a send.
func (e *endpoint) endSend(o *operation, err error) {
	e.send = nil
	e.trace("%s ends: %v", kindName(o.op.Kind), err)
	o.finish(transport.Completion{N: o.unreported, Err: err}, nil)
}
