//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	quietConns  = 8 // on the loops that are measured
	stalled     = 20
	flooded     = 50
	resetConns  = 40 // a window's
	victimConns = 1 + stalled + flooded
	mostDials   = 2000

	pingEvery  = 500 * time.Microsecond // of each quiet connection
	blockFor   = 45                     // ms, of each blockEvery
	blockEvery = 50 * time.Millisecond
	fillKiB    = 4 << 10
	patience   = 10 * time.Second
)

// process is the server's.
type process struct {
	address string
	cmd     *exec.Cmd
	input   io.Closer
}

func startServer(transport string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-serve", transport)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, input: input}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hostile: the server on %s said no address: %w", transport, err), p.stop())
	}
	p.address = strings.TrimSpace(line)
	return p, nil
}

func (p *process) stop() error {
	_ = p.input.Close()
	return p.cmd.Wait()
}

// client has the connections, by the loop they came to.
type client struct {
	address string
	quiet   []net.Conn
	victims []net.Conn // on loop 0: one that blocks it, those that stall, those that are flooded
}

// connect dials until there are enough connections on either side: the kernel spreads them by a hash.
func connect(address string) (*client, error) {
	c := &client{address: address}
	for range mostDials {
		if len(c.quiet) >= quietConns && len(c.victims) >= victimConns {
			return c, nil
		}
		conn, loop, err := dial(address)
		switch {
		case err != nil:
			c.close()
			return nil, err
		case loop == 0 && len(c.victims) < victimConns:
			c.victims = append(c.victims, conn)
		case loop != 0 && len(c.quiet) < quietConns:
			c.quiet = append(c.quiet, conn)
		default:
			conn.Close()
		}
	}
	c.close()
	return nil, fmt.Errorf("hostile: after %d connections %d are on loop 0 and %d elsewhere", mostDials, len(c.victims),
		len(c.quiet))
}

// dial connects and learns which loop has the connection.
func dial(address string) (net.Conn, int, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, 0, err
	}
	var loop [1]byte
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, loop[:]); err != nil {
		conn.Close()
		return nil, 0, fmt.Errorf("hostile: which loop: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, int(loop[0]), nil
}

func (c *client) close() {
	for _, conn := range slices.Concat(c.quiet, c.victims) {
		conn.Close()
	}
}

// result is what a window of round trips says.
type result struct {
	p99   time.Duration
	trips int
}

// window plays ping-pong on the quiet connections. A round trip begins when it is due, so that a stall is charged for
// all it delayed.
func (c *client) window(d time.Duration) (result, error) {
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var wait sync.WaitGroup
	for i, conn := range c.quiet {
		wait.Go(func() {
			took, err := pings(conn, d, pingEvery*time.Duration(i)/quietConns)
			mu.Lock()
			all, failed = append(all, took...), errors.Join(failed, err)
			mu.Unlock()
		})
	}
	wait.Wait()
	if failed != nil || len(all) == 0 {
		return result{}, fmt.Errorf("hostile: %d round trips: %w", len(all), failed)
	}
	slices.Sort(all)
	return result{p99: all[len(all)*99/100], trips: len(all)}, nil
}

func pings(conn net.Conn, d, offset time.Duration) ([]time.Duration, error) {
	took := make([]time.Duration, 0, d/pingEvery)
	begin := time.Now().Add(offset)
	for due := begin; due.Sub(begin) < d; due = due.Add(pingEvery) {
		time.Sleep(time.Until(due))
		if _, err := ask(conn, opPing, uint64(len(took))); err != nil {
			return took, err
		}
		took = append(took, time.Since(due))
	}
	return took, nil
}

// ask sends a request and returns the argument of the response.
func ask(conn net.Conn, op byte, argument uint64) (uint64, error) {
	if err := send(conn, op, argument); err != nil {
		return 0, err
	}
	return response(conn, op)
}

func send(conn net.Conn, op byte, argument uint64) error {
	m := binary.BigEndian.AppendUint64(nil, argument)
	m[0] = op
	_, err := conn.Write(m)
	return err
}

func response(conn net.Conn, op byte) (uint64, error) {
	var m [messageBytes]byte
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, m[:]); err != nil {
		return 0, err
	}
	if m[0] != op {
		return 0, fmt.Errorf("hostile: %q came back for %q", m[0], op)
	}
	m[0] = 0
	return binary.BigEndian.Uint64(m[:]), nil
}

// done is what the mix of a window consisted of.
type done struct {
	blocked, reset int
	posted         uint64
}

// mixedWindow is window with the mix on loop 0.
func (c *client) mixedWindow(d time.Duration) (result, done, error) {
	var did done
	// What needs an orderly loop comes before: connections to reset, of which few come to loop 0, and peers that stall.
	resets, err := c.more(resetConns)
	if err != nil {
		return result{}, did, err
	}
	stalls := c.victims[1 : 1+stalled]
	for i, conn := range stalls {
		if err := send(conn, opFill, fillKiB); err != nil {
			return result{}, did, fmt.Errorf("hostile: stalled peer %d: %w", i, err)
		}
	}
	before, err := ask(c.quiet[0], opCount, 0)
	if err != nil {
		return result{}, did, err
	}
	for _, conn := range c.victims[1+stalled:] {
		if err := send(conn, opPost, uint64(d.Milliseconds())); err != nil {
			return result{}, did, err
		}
	}
	var mixed result
	var failed error
	var wait sync.WaitGroup
	wait.Go(func() { mixed, failed = c.window(d) })
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		if err := send(c.victims[0], opBlock, blockFor); err != nil {
			failed = errors.Join(failed, err)
			break
		}
		did.blocked++
		if len(resets) > 0 {
			_ = resets[0].(*net.TCPConn).SetLinger(0)
			resets[0].Close()
			resets = resets[1:]
			did.reset++
		}
		time.Sleep(blockEvery)
	}
	wait.Wait()
	for _, conn := range resets {
		conn.Close()
	}
	after, err := ask(c.quiet[0], opCount, 0)
	did.posted = after - before
	return mixed, did, errors.Join(failed, err, c.settle(did.blocked))
}

// more dials further connections to loop 0.
func (c *client) more(n int) ([]net.Conn, error) {
	var conns []net.Conn
	for range mostDials {
		if len(conns) == n {
			break
		}
		conn, loop, err := dial(c.address)
		if err != nil {
			return nil, err
		}
		if loop != 0 {
			conn.Close()
			continue
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// settle takes what the mix has left to read, so that the next window begins on a quiet server.
func (c *client) settle(blocked int) error {
	for range blocked {
		if _, err := response(c.victims[0], opBlock); err != nil {
			return fmt.Errorf("hostile: after the mix: %w", err)
		}
	}
	for _, conn := range c.victims[1 : 1+stalled] {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.CopyN(io.Discard, conn, fillKiB<<10); err != nil {
			return fmt.Errorf("hostile: after the mix: %w", err)
		}
	}
	for _, conn := range c.victims[1+stalled:] {
		if _, err := response(conn, opPost); err != nil {
			return fmt.Errorf("hostile: after the mix: %w", err)
		}
	}
	return nil
}
