package uring

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
)

const (
	probeReceive = iota
	probeSend
	probes

	probeTries = 100 // times probeTurn
	probeTurn  = 10 * time.Millisecond
)

// probe finds out what the kernel has by doing it, on a pair of sockets: a limited receive and a vectored send. What is
// older than buffer rings, which it must have, is there.
func (t *Transport) probe() (Features, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("uring: socketpair: %w", err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if _, err := unix.Write(fds[1], []byte{1}); err != nil {
		return 0, fmt.Errorf("uring: write to a socketpair: %w", err)
	}
	e := t.ring.Get()
	ring.RecvLimited(e, int32(fds[0]), bufferGroup, 1, 1)
	e.SetUserData(probeReceive)
	e = t.ring.Get()
	v := t.arena.Vectors(2)
	p := t.pool.Block(256)
	v[0], v[1] = ring.MakeVector(p[:1]), ring.MakeVector(p[1:2])
	ring.SendVectors(e, int32(fds[0]), v, flagsNow)
	e.SetUserData(probeSend)
	results, err := t.probed()
	t.pool.PutBlock(p)
	if err != nil {
		return 0, err
	}
	features := SkippedSends
	if results[probeReceive] == 1 {
		features |= LimitedReceives
	}
	if results[probeSend] == 2 {
		features |= VectoredSends
	}
	return features, nil
}

// probed collects the results of the probes.
func (t *Transport) probed() (results [probes]int32, err error) {
	seen := 0
	for range probeTries {
		if err := t.ring.Wait(probeTurn, true); err != nil {
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
				return results, fmt.Errorf("%w: io_uring_enter: %w", ring.ErrUnavailable, err)
			}
			return results, fmt.Errorf("uring: enter: %w", err)
		}
		first, end := t.ring.Ready()
		for ; first != end; first++ {
			c := t.ring.Completion(first)
			if c.Flags()&ring.FlagBuffer != 0 {
				t.blocks.recycle(ring.BufferID(c))
			}
			if c.Flags()&ring.FlagMore == 0 {
				seen++
			}
			if c.UserData() < probes {
				results[c.UserData()] = c.Result()
			}
		}
		t.ring.Reaped(end)
		if seen == probes {
			t.arena.Reset()
			return results, nil
		}
	}
	return results, fmt.Errorf("%w: a receive and a send did not complete", ring.ErrUnavailable)
}
