//go:build linux

package load

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// churn makes a connection, echoes one message and closes it with a reset, over and over, on each of Conns slots.
type churn struct {
	*Engine
	flying int64 // connections
}

func (w *churn) begin(now time.Duration) {
	w.flying = 0
	for i := range w.conns[:w.cfg.Conns] {
		if c := &w.conns[i]; c.fd >= 0 { // it got no answer in the slice before
			_ = unix.Close(int(c.fd))
		}
		w.again(&w.conns[i], now)
	}
}

// again gives a slot a new connection. On loopback the handshake is over when connect returns, so the message can
// nearly always be sent at once; else epoll tells when.
func (w *churn) again(c *conn, now time.Duration) {
	fd, err := w.startConnecting()
	if err != nil {
		w.errs++
		if w.firstErr == nil {
			w.firstErr = err
		}
		return // the slot stays empty until the next slice
	}
	start := w.pattern.start(int(w.messages) + c.index)
	*c = conn{fd: int32(fd), index: c.index, sendAt: start, recvAt: start, sentAt: now}
	w.flying++
	if err := w.watch(c, unix.EPOLL_CTL_ADD, unix.EPOLLIN); err != nil {
		w.fail(c, err)
		return
	}
	w.push(c, 1)
}

func (w *churn) startConnecting() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("load: socket: %w", err)
	}
	if err = options(fd); err == nil {
		if err = unix.Connect(fd, sockaddr(w.to)); errors.Is(err, unix.EINPROGRESS) {
			err = nil
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("load: connect to %v: %w", w.to, err)
	}
	return fd, nil
}

func (w *churn) tick(time.Duration) {}

func (w *churn) received(c *conn, n int, now time.Duration) {
	if w.completed(c, n) == 0 {
		return
	}
	if w.measuring {
		w.messages++
		w.record(now-c.sentAt, 1)
	}
	w.flying--
	_ = unix.Close(int(c.fd)) // a reset
	c.fd = -1
	if !w.stopping {
		w.again(c, now)
	}
}

func (w *churn) failed(*conn) { w.flying-- }

func (w *churn) owed() int64 { return w.flying }
