package sim

import (
	"fmt"
	"hash/crc32"
	"time"
)

// stream is one direction of a connection. Its bytes are numbered; the four positions only grow:
//
//	read ≤ arrived ≤ sent ≤ written
//
// written-sent is what the sender's socket buffer holds, sent-arrived travels, arrived-read is what the receiver's
// socket buffer holds. The sender may send while it has credit, which is the free room of the receiver's buffer as far
// as the sender has heard of it.
type stream struct {
	w    *World
	from *endpoint
	to   *endpoint

	buf     []byte // the bytes from read on
	read    int64
	arrived int64
	sent    int64
	written int64

	sendRoom    int           // size of the sender's buffer
	receiveRoom int           // size of the receiver's buffer
	credit      int           // what may still be sent
	owed        int           // room that the sender does not know of yet
	crediting   bool          // an event tells the sender
	last        time.Duration // arrival of the latest segment

	// Of a connection that a Peer plays.
	borders   []int64 // positions between its Writes that have not been read up to
	throttled bool    // the sender's kernel takes no more than allowance
	allowance int

	finQueued  bool // the sender writes no more
	finSent    bool
	finArrived bool

	// To check that what is handed out is what was written: checksums at some positions, and that of what was handed
	// out.
	marks     []mark
	writeSum  uint32
	handed    int64
	handedSum uint32
}

// mark is the checksum of all bytes before a position.
type mark struct {
	at  int64
	sum uint32
}

// room is how much the sender can write.
func (s *stream) room() int {
	room := s.sendRoom - int(s.written-s.sent)
	if s.throttled {
		room = min(room, s.allowance)
	}
	return room
}

// joined is how much the receiver can read at once.
func (s *stream) joined() int {
	if len(s.borders) > 0 {
		return min(s.unread(), int(s.borders[0]-s.read))
	}
	return s.unread()
}

// unread is how much the receiver can read.
func (s *stream) unread() int { return int(s.arrived - s.read) }

// write takes p, which has room, and sends what it may.
func (s *stream) write(p []byte) {
	s.buf = append(s.buf, p...)
	s.written += int64(len(p))
	if s.throttled {
		s.allowance -= len(p)
	}
	s.writeSum = crc32.Update(s.writeSum, crc32.IEEETable, p)
	s.marks = append(s.marks, mark{s.written, s.writeSum})
	s.transmit()
}

// transmit sends segments while there are bytes and credit, then FIN.
func (s *stream) transmit() {
	for s.sent < s.written && s.credit > 0 {
		n := min(int(s.written-s.sent), s.credit, s.w.cfg.SegmentBytes)
		if n > 1 && s.w.chance(s.w.cfg.Faults.Split) {
			n = s.w.some(n - 1)
		}
		s.sent += int64(n)
		s.credit -= n
		if s.w.chance(s.w.cfg.Faults.Reset) {
			s.arrive(func() { s.breakDown() })
			return
		}
		s.arrive(func() { s.segment(n) })
	}
	if s.finQueued && !s.finSent && s.sent == s.written {
		s.finSent = true
		s.arrive(func() { s.fin() })
	}
}

// arrive lets fn happen one latency later, after what is on its way already.
func (s *stream) arrive(fn func()) {
	s.last = max(s.last, s.w.now+s.w.travel())
	s.w.at(s.last-s.w.now, fn)
}

// segment receives n bytes.
func (s *stream) segment(n int) {
	if s.to.broken {
		return
	}
	s.arrived += int64(n)
	s.to.trace("%d bytes arrive", n)
	if s.to.closed {
		// RFC 9293, 3.10.7.1: what arrives where nobody is left is answered by a reset.
		s.to.sendReset()
		return
	}
	s.to.receive()
}

func (s *stream) fin() {
	if s.to.broken {
		return
	}
	s.finArrived = true
	s.to.trace("FIN arrives")
	s.to.finished()
}

// breakDown breaks the connection for both sides.
func (s *stream) breakDown() {
	s.to.trace("the connection breaks")
	s.to.resetArrived()
	s.from.resetArrived()
}

// drop forgets what was not sent.
func (s *stream) drop() {
	s.buf = s.buf[:int(s.sent-s.read)]
	s.written = s.sent
	for len(s.marks) > 0 && s.marks[len(s.marks)-1].at > s.written {
		s.marks = s.marks[:len(s.marks)-1]
	}
}

// take moves up to len(p) bytes that have arrived into p, and lets the sender know of the room after a while. As in TCP
// (RFC 9293, 3.8.6.2.2) it keeps small amounts to itself until they are worth a segment or half the buffer.
func (s *stream) take(p []byte) {
	n := copy(p, s.buf[:len(p)])
	s.buf = s.buf[n:]
	s.read += int64(n)
	for len(s.borders) > 0 && s.borders[0] <= s.read {
		s.borders = s.borders[1:]
	}
	if s.read == s.written {
		s.buf = nil
	}
	s.owed += n
	if s.crediting || s.owed < min(s.w.cfg.SegmentBytes, s.receiveRoom/2) {
		return
	}
	s.crediting = true
	s.w.at(s.w.travel(), func() {
		s.crediting = false
		s.credit += s.owed
		s.owed = 0
		s.transmit()
		s.from.push()
	})
}

// hand checks bytes that the receiver's Wait hands out.
func (s *stream) hand(p []byte) error {
	for len(p) > 0 {
		n := len(p)
		if len(s.marks) > 0 {
			n = min(n, int(s.marks[0].at-s.handed))
		}
		s.handedSum = crc32.Update(s.handedSum, crc32.IEEETable, p[:n])
		s.handed += int64(n)
		p = p[n:]
		if len(s.marks) > 0 && s.marks[0].at == s.handed {
			if s.marks[0].sum != s.handedSum {
				return fmt.Errorf("%s: the %d bytes handed out are not those that were sent", s.to.name(), s.handed)
			}
			s.marks = s.marks[1:]
		}
	}
	return nil
}

func (s *stream) check() error {
	ok := s.handed <= s.read && s.read <= s.arrived && s.arrived <= s.sent && s.sent <= s.written &&
		len(s.buf) == int(s.written-s.read) && s.credit >= 0 && s.room() >= 0 &&
		int(s.sent-s.read)+s.credit+s.owed == s.receiveRoom
	if !ok {
		return fmt.Errorf("%s: positions handed %d, read %d, arrived %d, sent %d, written %d; buffer %d, credit %d, owed %d",
			s.to.name(), s.handed, s.read, s.arrived, s.sent, s.written, len(s.buf), s.credit, s.owed)
	}
	return nil
}
