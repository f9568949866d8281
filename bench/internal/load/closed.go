//go:build linux

package load

import "time"

// closed is the closed loop.
type closed struct {
	*Engine
	flying int64 // messages
}

func (w *closed) begin(now time.Duration) {
	w.flying = 0
	for i := range w.conns[:w.cfg.Conns] {
		if c := &w.conns[i]; c.fd >= 0 {
			w.batch(c, now)
		}
	}
}

func (w *closed) batch(c *conn, now time.Duration) {
	c.sentAt = now
	w.flying += int64(w.cfg.Pipeline)
	w.push(c, w.cfg.Pipeline)
}

func (w *closed) tick(time.Duration) {}

func (w *closed) received(c *conn, n int, now time.Duration) {
	if k := w.completed(c, n); k > 0 {
		w.flying -= int64(k)
		if w.measuring {
			w.messages += int64(k)
			w.record(now-c.sentAt, k)
		}
	}
	if c.recvLeft == 0 && !w.stopping {
		w.batch(c, now)
	}
}

func (w *closed) failed(c *conn) {
	w.flying -= int64((c.recvLeft + c.partial) / w.pattern.messageBytes)
}

func (w *closed) owed() int64 { return w.flying }
