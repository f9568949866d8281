package weir

import "sync/atomic"

// limit counts a server's accepted connections against Server.MaxConnections. Any goroutine may call its methods.
type limit struct {
	most int64 // 0: none
	open atomic.Int64
}

func (l *limit) take() bool {
	if l.most == 0 {
		return true
	}
	for {
		n := l.open.Load()
		if n >= l.most {
			return false
		}
		if l.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *limit) giveBack() {
	if l.most > 0 {
		l.open.Add(-1)
	}
}

// takeConnection reports whether one more connection may become a channel. Where not, the worker's listeners stand
// still until another one has closed. Loop goroutine.
func (w *worker) takeConnection() bool {
	if w.limit.take() {
		return true
	}
	waited := w.full.Swap(true)
	if w.limit.take() { // another loop gave one back before it could see that this one waits
		return true
	}
	if !waited {
		w.limited.Add(1)
	}
	return false
}

// giveBack makes room for one connection, and the loops that wait for room look for those that wait. Any goroutine.
func (w *worker) giveBack() {
	w.limit.giveBack()
	w.wakeAcceptors(nil)
}

// wakeAcceptors lets the loops that wait for room look for it, but for one. Any goroutine.
func (w *worker) wakeAcceptors(but *worker) {
	w.engine.acceptors(func(other *worker) {
		if other != but && other.full.Load() && other.full.Swap(false) {
			other.do(other.resumeAccepting)
		}
	})
}

// resumeAccepting lets the listeners go on, a different one first each time. Loop goroutine.
func (w *worker) resumeAccepting() {
	if w.gone {
		return
	}
	w.turn++
	for i := range w.listeners {
		w.listeners[(i+w.turn)%len(w.listeners)].Readmit()
	}
}
