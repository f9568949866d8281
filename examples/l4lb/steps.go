//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/internal/netlab"
	"github.com/weirnet/weir/xdp/lb"
)

// drain takes server 1 out under load, and in again.
func (l *lab) drain(ctx context.Context, connections int) (string, error) {
	w, err := l.load(ctx, connections)
	if err != nil {
		return "", err
	}
	for _, v := range l.vips {
		err = errors.Join(err, l.balancer.DrainServer(v, server(v, 1).Addr))
	}
	// Connections that were on their way count as old.
	if err == nil {
		err = w.more(10*int64(connections), 10)
	}
	w.count()
	if err == nil {
		err = w.more(50*int64(connections), 100)
	}
	late := w.onServer[1].Load()
	kept := l.echoes[1].Connections()
	err = errors.Join(err, w.end())
	for _, v := range l.vips {
		err = errors.Join(err, l.balancer.AddServer(v, server(v, 1)))
	}
	if err == nil && (late > 0 || kept == 0) {
		err = fmt.Errorf("%d new connections on the server that drains, which has kept %d", late, kept)
	}
	return fmt.Sprintf("%s, %d kept by the server, 0 new on it", w.figures(), kept), err
}

// kill ends server 2 and waits until the checks have noticed.
func (l *lab) kill(ctx context.Context, connections int) (string, error) {
	began := time.Now()
	l.echoes[2].Close()
	dead := func(s lb.ServerStats) bool { return s.Addr == netlab.Host4(4) || s.Addr == netlab.Host6(4) }
	if err := l.await(ctx, func(s lb.ServerStats) bool { return s.Up != dead(s) }); err != nil {
		return "", err
	}
	noticed := time.Since(began)
	for _, v := range l.vips {
		for range connections {
			switch id, err := l.call(ctx, v); {
			case err != nil:
				return "", fmt.Errorf("%v: %w", v, err)
			case id == 2:
				return "", fmt.Errorf("%v: the dead server has replied", v)
			}
		}
	}
	if err := l.serve(2); err != nil {
		return "", err
	}
	if err := l.await(ctx, func(s lb.ServerStats) bool { return s.Up }); err != nil {
		return "", err
	}
	return fmt.Sprintf("noticed in %v (3 checks), then %d connections, 0 failed; it is back",
		noticed.Round(time.Millisecond), connections*len(l.vips)), nil
}

// reload replaces the program under load.
func (l *lab) reload(ctx context.Context, connections, times int) (string, error) {
	w, err := l.load(ctx, connections)
	if err != nil {
		return "", err
	}
	for i := 0; i < times && err == nil; i++ {
		if err = l.balancer.Reload(); err == nil {
			err = w.more(int64(connections), 2)
		}
	}
	err = errors.Join(err, w.end())
	return fmt.Sprintf("%d times, %s", times, w.figures()), err
}
