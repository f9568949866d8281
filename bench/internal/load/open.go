//go:build linux

package load

import "time"

// open is the open loop: the i-th message is due at begun + i/rate, on connection i modulo their number.
type open struct {
	*Engine
	begun  time.Duration
	due    int64 // messages that have been due
	flying int64
}

func (w *open) begin(now time.Duration) {
	w.begun, w.due, w.flying = now, 0, 0
	for i := range w.conns[:w.cfg.Conns] {
		w.conns[i].answered = 0
	}
}

// dueAt returns when the i-th message is due.
func (w *open) dueAt(i int64) time.Duration {
	return w.begun + time.Duration(float64(i)/w.cfg.Rate*float64(time.Second))
}

func (w *open) tick(now time.Duration) {
	if w.stopping {
		return
	}
	for w.dueAt(w.due) <= now {
		w.busy(now)
		c := &w.conns[w.due%int64(w.cfg.Conns)]
		w.due++
		if c.fd >= 0 {
			w.flying++
			w.push(c, 1)
		}
	}
}

func (w *open) received(c *conn, n int, now time.Duration) {
	k := w.completed(c, n)
	for range k {
		due := w.dueAt(int64(c.answered)*int64(w.cfg.Conns) + int64(c.index))
		c.answered++
		if due >= w.windowFrom && (w.measuring || due < w.windowTo) {
			w.record(now-due, 1)
		}
	}
	w.flying -= int64(k)
	if w.measuring {
		w.messages += int64(k)
	}
}

func (w *open) failed(c *conn) { w.flying -= int64((c.recvLeft + c.partial) / w.pattern.messageBytes) }

func (w *open) owed() int64 { return w.flying }
