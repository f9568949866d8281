//go:build linux

package netlab

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Echo is a server that sends back what it gets, behind a byte that says who it is: at the beginning of a TCP
// connection, and in front of each datagram.
type Echo struct {
	tcp   net.Listener
	udp   []net.PacketConn
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]bool
	ended bool
}

// NewEcho serves TCP on a port of all addresses of the namespace, and UDP on these addresses, whose replies come
// from them.
func NewEcho(s *Space, id byte, tcp uint16, udp ...netip.AddrPort) (*Echo, error) {
	e := &Echo{conns: map[net.Conn]bool{}}
	err := s.Do(func() (err error) {
		e.tcp, err = net.Listen("tcp", netip.AddrPortFrom(netip.IPv6Unspecified(), tcp).String())
		for _, address := range udp {
			var c net.PacketConn
			if err == nil {
				if c, err = net.ListenPacket("udp", address.String()); err == nil {
					e.udp = append(e.udp, c)
				}
			}
		}
		return err
	})
	if err != nil {
		e.Close()
		return nil, err
	}
	e.wg.Go(func() { e.accept(id) })
	for _, c := range e.udp {
		e.wg.Go(func() { datagrams(c, id) })
	}
	return e, nil
}

func (e *Echo) accept(id byte) {
	for {
		c, err := e.tcp.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		ended := e.ended
		e.conns[c] = true
		e.mu.Unlock()
		if ended {
			_ = c.Close()
			return
		}
		e.wg.Go(func() {
			if _, err := c.Write([]byte{id}); err == nil {
				_, _ = io.Copy(c, c) // the client sees what is missing
			}
			_ = c.Close()
			e.mu.Lock()
			delete(e.conns, c)
			e.mu.Unlock()
		})
	}
}

func datagrams(c net.PacketConn, id byte) {
	b := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(append([]byte{id}, b[:n]...), from) // the client asks again
	}
}

// Connections is how many are open.
func (e *Echo) Connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// Close ends the server with its connections.
func (e *Echo) Close() {
	if e.tcp != nil {
		_ = e.tcp.Close()
	}
	for _, c := range e.udp {
		_ = c.Close()
	}
	e.mu.Lock()
	e.ended = true
	for c := range e.conns { //weir:unordered all are closed
		_ = c.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

// Dial connects from the namespace.
func (s *Space) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = s.Do(func() (err error) { c, err = new(net.Dialer).DialContext(ctx, network, address); return err })
	return c, err
}

// Call makes a connection to an Echo, sends a message on it and returns who sent it back.
func (s *Space) Call(ctx context.Context, network, address string, message []byte) (id byte, err error) {
	c, err := s.Dial(ctx, network, address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(10 * time.Second)
	}
	if err := c.SetDeadline(end); err != nil {
		return 0, err
	}
	got := make([]byte, len(message)+1)
	if _, err := c.Write(message); err != nil {
		return 0, err
	}
	if network == "udp" {
		if _, err = c.Read(got); err != nil {
			return 0, err
		}
	} else if _, err = io.ReadFull(c, got); err != nil {
		return 0, err
	}
	if string(got[1:]) != string(message) {
		return 0, errors.New("netlab: another message came back")
	}
	return got[0], nil
}
