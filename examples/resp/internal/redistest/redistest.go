// Package redistest runs a real redis-server for a test and talks to it.
package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testenv"
)

// startTimeout is how long a server may take to come up on a loaded machine.
const startTimeout = 30 * time.Second

// Binary returns the path of one of Redis' programs. Where it is not installed, the test is skipped, or fails when
// WEIR_REQUIRE names "redis".
func Binary(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	testenv.Require(t, "redis", err)
	return path
}

// Start runs a redis-server on a Unix socket, with nothing kept on disk, until the test ends, and returns the socket's
// path. Keys expire in it only when somebody looks at them, so that the test decides when.
func Start(t testing.TB) (socket string) {
	t.Helper()
	path := Binary(t, "redis-server")
	dir, err := os.MkdirTemp("", "resp") // a test's own directory can be too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "redis.sock")
	log, err := os.Create(filepath.Join(dir, "redis.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
		"--dir", dir, "--enable-debug-command", "yes")
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Wait()
	}()
	t.Cleanup(func() {
		_ = server.Process.Kill()
		<-ended
	})
	for deadline := time.Now().Add(startTimeout); ; {
		c, err := Dial(socket)
		if err == nil {
			defer c.Close()
			if v, err := c.Do("DEBUG", "SET-ACTIVE-EXPIRE", "0"); err != nil || string(v.Bytes) != "OK" {
				t.Fatalf("redis-server does not take DEBUG: %v %v", v, err)
			}
			return socket
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("redis-server ended: %s", text)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("redis-server is not there after %v: %v", startTimeout, err)
		}
	}
}

// Conn is a client's connection. It belongs to one goroutine.
type Conn struct {
	net.Conn
	// Split, when set, is asked how long the next piece is that Exchange writes.
	Split func() int

	in   []byte
	done int // bytes of in that are replies already returned
}

// Dial connects to a server on a Unix socket.
func Dial(socket string) (*Conn, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return NewConn(c), nil
}

// NewConn takes over c.
func NewConn(c net.Conn) *Conn { return &Conn{Conn: c} }

// Do sends one request and waits for its reply.
func (c *Conn) Do(args ...string) (Reply, error) {
	if _, err := c.Write(arrayWire(args)); err != nil {
		return Reply{}, err
	}
	return c.Reply()
}

// Exchange implements Server. It reads while it writes: the peer may stop reading when nobody reads its replies.
func (c *Conn) Exchange(wire []byte, requests int) (replies [][]byte, err error) {
	sent := make(chan error, 1)
	go func() { sent <- c.send(wire) }()
	for range requests {
		r, err := c.Reply()
		if err != nil {
			return nil, err
		}
		replies = append(replies, bytes.Clone(r.wire))
	}
	return replies, <-sent
}

// send writes in pieces, when Split is set, so that the peer may get them one by one.
func (c *Conn) send(wire []byte) error {
	for len(wire) > 0 {
		n := len(wire)
		if c.Split != nil {
			n = min(n, max(1, c.Split()))
		}
		if _, err := c.Write(wire[:n]); err != nil {
			return err
		}
		wire = wire[n:]
	}
	return nil
}

// Reply waits for the next reply and returns it. It is valid until the next call.
func (c *Conn) Reply() (Reply, error) {
	for {
		rest := c.in[c.done:]
		r, err := parse(rest)
		if err == nil {
			c.done += len(r.wire)
			return r, nil
		}
		if !errors.Is(err, errShort) {
			return Reply{}, err
		}
		c.in, c.done = c.in[:copy(c.in, rest)], 0
		if len(c.in) == cap(c.in) {
			c.in = append(c.in, make([]byte, max(4096, len(c.in)))...)[:len(c.in)]
		}
		got, err := c.Read(c.in[len(c.in):cap(c.in)])
		if got == 0 && err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return Reply{}, err
		}
		c.in = c.in[:len(c.in)+got]
	}
}
