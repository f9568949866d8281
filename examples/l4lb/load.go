//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/xdp/lb"
)

func target(v lb.VIP) (network, address string) {
	return v.Protocol.String(), netip.AddrPortFrom(v.Addr, v.Port).String()
}

// call makes a connection and returns which server has served it.
func (l *lab) call(ctx context.Context, v lb.VIP) (byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	network, address := target(v)
	return l.client.Call(ctx, network, address, []byte("hello"))
}

// reach makes connections one after the other to each VIP.
func (l *lab) reach(ctx context.Context, connections int) (string, error) {
	var shares [servers]int
	for _, v := range l.vips {
		for range connections {
			id, err := l.call(ctx, v)
			if err != nil {
				return "", fmt.Errorf("%v: %w", v, err)
			}
			shares[id]++
		}
	}
	for i, n := range shares {
		if n == 0 {
			return "", fmt.Errorf("server %d got none: %v", i, shares)
		}
	}
	return fmt.Sprintf("%d connections, by server %v", connections*len(l.vips), shares), nil
}

// upload sends bytes up and has them back, in each family.
func (l *lab) upload(ctx context.Context, size int) (string, error) {
	began := time.Now()
	for _, v := range l.vips[:2] {
		network, address := target(v)
		c, err := l.client.Dial(ctx, network, address)
		if err != nil {
			return "", err
		}
		err = echoed(ctx, c, size)
		if err := errors.Join(err, c.Close()); err != nil {
			return "", fmt.Errorf("%v: %w", v, err)
		}
	}
	took := time.Since(began)
	return fmt.Sprintf("%d MiB up and back over each family, %.1f Gbit/s", size>>20,
		float64(4*size)*8/took.Seconds()/1e9), nil
}

// echoed sends size bytes on a connection and compares what comes back, by its hash.
func echoed(ctx context.Context, c net.Conn, size int) error {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	sent, got, sending := sha256.New(), sha256.New(), make(chan error, 1)
	go func() {
		block := make([]byte, 1<<16)
		for left := size; left > 0; left -= len(block) {
			block[left>>16&0xffff]++
			block = block[:min(len(block), left)]
			sent.Write(block) // never fails
			if _, err := c.Write(block); err != nil {
				sending <- err
				return
			}
		}
		sending <- c.(*net.TCPConn).CloseWrite()
	}()
	_, err := io.ReadFull(c, make([]byte, 1)) // who it is
	var back int64
	if err == nil {
		back, err = io.Copy(got, c)
	}
	if err == nil && back != int64(size) {
		err = fmt.Errorf("%d of %d bytes came back", back, size)
	}
	if err != nil {
		_ = c.SetDeadline(time.Unix(1, 0)) // the sender stops
	}
	err = errors.Join(err, <-sending)
	if err == nil && !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		err = errors.New("other bytes came back")
	}
	return err
}

// load are connections that are in use, of each family, and others that are opened meanwhile.
type load struct {
	l        *lab
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup
	messages atomic.Int64
	opened   atomic.Int64
	broken   atomic.Int64
	refused  atomic.Int64
	onServer [servers]atomic.Int64 // new connections since count
}

func (l *lab) load(ctx context.Context, connections int) (*load, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &load{l: l, ctx: ctx, stop: stop}
	for _, v := range l.vips[:2] {
		for range connections {
			network, address := target(v)
			c, err := l.client.Dial(ctx, network, address)
			if err != nil {
				w.end()
				return nil, err
			}
			w.wg.Go(func() { w.talk(c) })
		}
		w.wg.Go(func() { w.open(v) })
	}
	return w, w.more(5*int64(connections), 10)
}

// talk sends messages on a connection and waits for each to come back.
func (w *load) talk(c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(w.ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	message := []byte("are you still there?")
	back := make([]byte, len(message))
	_, err := io.ReadFull(c, back[:1])
	for err == nil {
		if _, err = c.Write(message); err != nil {
			break
		}
		if _, err = io.ReadFull(c, back); err == nil {
			w.messages.Add(1)
		}
	}
	if w.ctx.Err() == nil {
		w.broken.Add(1)
	}
}

// open makes one connection after the other.
func (w *load) open(v lb.VIP) {
	for w.ctx.Err() == nil {
		id, err := w.l.call(w.ctx, v)
		switch {
		case err == nil:
			w.opened.Add(1)
			w.onServer[id].Add(1)
		case w.ctx.Err() == nil:
			w.refused.Add(1)
		}
	}
}

// count begins to count new connections by server.
func (w *load) count() {
	for i := range w.onServer {
		w.onServer[i].Store(0)
	}
}

// more returns when so many messages and connections more have been.
func (w *load) more(messages, opened int64) error {
	messages, opened = messages+w.messages.Load(), opened+w.opened.Load()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for w.messages.Load() < messages || w.opened.Load() < opened {
		select {
		case <-poll.C:
		case <-w.ctx.Done():
			return w.ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("only %d messages and %d connections in %v, %d broken, %d refused",
				w.messages.Load(), w.opened.Load(), patience, w.broken.Load(), w.refused.Load())
		}
	}
	return nil
}

// end stops the load and returns what went wrong.
func (w *load) end() error {
	w.stop()
	w.wg.Wait()
	if b, r := w.broken.Load(), w.refused.Load(); b+r > 0 {
		return fmt.Errorf("%d connections broken, %d refused", b, r)
	}
	return nil
}

func (w *load) figures() string {
	return fmt.Sprintf("%d messages, %d new connections, 0 broken", w.messages.Load(), w.opened.Load())
}
