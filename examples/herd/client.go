//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"
)

// patience bounds each connection and each reply.
const patience = 10 * time.Second

// few are the long-lived clients whose spread over two loops is measured.
const few = 20

// measurement is what was seen of one way.
type measurement struct {
	wakeups float64 // per connection, one by one
	failed  float64 // accepts per connection, one by one; less than 0: not known
	spread  []int   // connections by loop, one by one
	two     []int   // few long-lived connections on two loops

	cpu     time.Duration // per connection, many at once
	rate    float64       // connections a second, many at once
	latency time.Duration // p99 from connect to the first byte, many at once
}

// child is a server's process.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	address string
}

func startChild(cfg config, r row, loops int, stderr io.Writer) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(program, "-serve", r.way, "-transport", string(r.transport),
		"-loops", strconv.Itoa(loops))}
	c.cmd.Stderr = stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(bufio.NewReader(out))
	var first hello
	if err := c.out.Decode(&first); err != nil {
		return nil, errors.Join(fmt.Errorf("the server did not start: %w", err), c.stop())
	}
	c.address = first.Address
	return c, nil
}

func (c *child) sample() (s sample, err error) {
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		return s, err
	}
	return s, c.out.Decode(&s)
}

// stop ends the server by the end of its input.
func (c *child) stop() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// measure measures one way: connections one by one, many at once, and few on two loops. One server runs at a time.
func measure(cfg config, r row, stderr io.Writer) (m measurement, err error) {
	if err := m.onAllLoops(cfg, r, stderr); err != nil {
		return m, err
	}
	return m, m.onTwoLoops(cfg, r, stderr)
}

func (m *measurement) onAllLoops(cfg config, r row, stderr io.Writer) (err error) {
	c, err := startChild(cfg, r, cfg.loops, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := m.oneByOne(c, cfg.connections); err != nil {
		return err
	}
	return m.atOnce(c, cfg.clients, cfg.window)
}

// oneByOne makes connections that stay, so that the loops wake up for nothing but new ones.
func (m *measurement) oneByOne(c *child, n int) error {
	// The first connections find a server that is still busy with itself.
	warm, err := connectAll(c.address, min(n, 50))
	if err != nil {
		return err
	}
	defer closeAll(warm)
	before, err := c.sample()
	if err != nil {
		return err
	}
	conns, err := connectAll(c.address, n)
	defer closeAll(conns)
	if err != nil {
		return err
	}
	after, err := c.sample()
	if err != nil {
		return err
	}
	m.wakeups = float64(after.Wakeups-before.Wakeups) / float64(n)
	m.failed = -1
	if after.Known {
		m.failed = float64(after.Failed-before.Failed) / float64(n)
	}
	for i, open := range after.Open {
		m.spread = append(m.spread, open-before.Open[i])
	}
	return nil
}

// atOnce lets clients connect, read a byte and leave, over and over.
func (m *measurement) atOnce(c *child, clients int, window time.Duration) error {
	before, err := c.sample()
	if err != nil {
		return err
	}
	began := time.Now()
	took := make([][]time.Duration, clients)
	errs := make([]error, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { took[i], errs[i] = churn(c.address, began.Add(window)) })
	}
	all.Wait()
	seconds := time.Since(began).Seconds()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	after, err := c.sample()
	if err != nil {
		return err
	}
	latencies := slices.Concat(took...)
	slices.Sort(latencies)
	m.latency = latencies[len(latencies)*99/100]
	m.rate = float64(len(latencies)) / seconds
	m.cpu = (after.CPU - before.CPU) / time.Duration(len(latencies))
	return nil
}

// onTwoLoops is the case where a few connections decide: they stay, and two loops have to share them.
func (m *measurement) onTwoLoops(cfg config, r row, stderr io.Writer) (err error) {
	c, err := startChild(cfg, r, 2, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	conns, err := connectAll(c.address, few)
	defer closeAll(conns)
	if err != nil {
		return err
	}
	s, err := c.sample()
	m.two = s.Open
	return err
}

// churn connects until the deadline, at least once.
func churn(address string, until time.Time) (took []time.Duration, err error) {
	for {
		began := time.Now()
		conn, err := connect(address)
		if err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
		conn.Close()
		if time.Now().After(until) {
			return took, nil
		}
	}
}

// connectAll makes n connections, one after the other.
func connectAll(address string, n int) (conns []net.Conn, err error) {
	for range n {
		conn, err := connect(address)
		if err != nil {
			return conns, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		conn.Close()
	}
}

// connect returns a connection that has been greeted. It closes by a reset, so that no port stays in use.
func connect(address string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	var first [1]byte
	err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.SetDeadline(time.Now().Add(patience)))
	if err == nil {
		_, err = io.ReadFull(conn, first[:])
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("no greeting: %w", err)
	}
	return conn, nil
}
