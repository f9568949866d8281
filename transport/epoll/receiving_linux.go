package epoll

import (
	"io"
	"syscall"

	"github.com/weirnet/weir/internal/sys"
)

// receive makes one receive call for the Recv in progress and returns 1 when it brought data.
func (t *Transport) receive(s *socket) int {
	mem := t.blocks.next()
	n, errno := sys.Recv(int(s.fd), mem[:min(len(mem), s.limit)])
	t.counters.Receives++
	switch {
	case n > 0:
		t.received(s, n)
		return 1
	case errno == syscall.EAGAIN: // an old event; a new one will come
	case errno != 0:
		s.breaks(errno)
		t.finish(s, reading, 0, errno)
	case s.broken != 0: // a Send was told what is wrong; the kernel says it only once
		t.finish(s, reading, 0, syscall.Errno(s.broken))
	default:
		s.flags |= flagEOF
		t.finish(s, reading, 0, io.EOF)
	}
	return 0
}

// received hands out the n bytes that were received into the hottest block.
func (t *Transport) received(s *socket, n int) {
	t.stats.Received += uint64(n)
	s.limit -= n
	c := t.emit()
	c.Token, c.Buf, c.N, c.More = s.tokens[reading], t.blocks.lend(n), n, true
	if s.limit == 0 {
		c.More = false
		s.end(reading)
		t.markDirty(s)
	}
}
