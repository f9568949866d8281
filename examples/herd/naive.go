//go:build linux

package main

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// naive is the herd: one listener in the epoll instance of each thread, level-triggered, without EPOLLEXCLUSIVE. The
// kernel wakes all threads for each connection, and puts most of those that are too late back to sleep: they show as
// context switches, few as failed accepts.
type naive struct {
	at       string
	listener int
	census   census
	failed   atomic.Uint64
}

func openNaive(loops int) (target, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	n := &naive{listener: fd}
	if err := n.start(loops); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return n, nil
}

func (n *naive) start(loops int) error {
	if err := unix.Bind(n.listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := unix.Listen(n.listener, 4096); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	name, err := unix.Getsockname(n.listener)
	if err != nil {
		return fmt.Errorf("getsockname: %w", err)
	}
	n.at = fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for range loops {
		started := make(chan error)
		//weir:goroutines each is a loop of its own, for the rest of the process
		go n.loop(started)
		if err := <-started; err != nil {
			return err
		}
	}
	return nil
}

// loop is one thread. It lives as long as the process.
func (n *naive) loop(started chan<- error) {
	runtime.LockOSThread()
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = watch(ep, n.listener)
	}
	n.census.enroll()
	started <- err
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 64)
	for {
		count, err := unix.EpollWait(ep, events, -1)
		if err != nil && err != unix.EINTR {
			panic(fmt.Errorf("epoll_wait: %w", err))
		}
		for _, e := range events[:max(count, 0)] {
			if int(e.Fd) == n.listener {
				n.accept(ep)
			} else {
				n.read(int(e.Fd))
			}
		}
	}
}

func watch(ep, fd int) error {
	return unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

func (n *naive) accept(ep int) {
	fd, _, err := unix.Accept4(n.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		n.failed.Add(1)
		return
	}
	if _, err := unix.Write(fd, []byte(greeting)); err != nil || watch(ep, fd) != nil {
		unix.Close(fd)
		return
	}
	n.census.came()
}

func (n *naive) read(fd int) {
	var buf [64]byte
	if count, err := unix.Read(fd, buf[:]); count > 0 || err == unix.EAGAIN {
		return
	}
	unix.Close(fd)
	n.census.went()
}

func (n *naive) address() string { return n.at }

func (n *naive) sample() (sample, error) {
	s, err := n.census.sample()
	s.Failed, s.Known = n.failed.Load(), true
	return s, err
}

// close leaves the threads to the end of the process.
func (n *naive) close() error { return nil }
