// Net is the server of Go's standard library: a goroutine for each connection.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"io"
	"net"

	"github.com/weirnet/weir/bench/internal/frame"
	"github.com/weirnet/weir/bench/internal/serve"
)

const bufferBytes = 64 << 10

func main() {
	o := serve.Flags()
	flag.Parse()
	handle, err := handler(o)
	if err != nil {
		serve.Fatal(err)
	}
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		serve.Fatal(err)
	}
	go accept(l, handle)
	if err := o.Ready(l.Addr().String()); err != nil {
		serve.Fatal(err)
	}
}

func accept(l net.Listener, handle func(net.Conn)) {
	for {
		c, err := l.Accept() // package net sets TCP_NODELAY
		if err != nil {
			serve.Fatal(err)
		}
		go handle(c)
	}
}

func handler(o *serve.Options) (func(net.Conn), error) {
	switch o.Mode {
	case serve.Echo:
		return echo, nil
	case serve.Frames:
		return frames, nil
	case serve.Proxy:
		return func(c net.Conn) { proxy(c, o.Backend) }, nil
	}
	return nil, o.BadMode()
}

// echo is not io.Copy, which would splice both ways through a pipe.
func echo(c net.Conn) {
	defer c.Close()
	// Most echo servers for Go have 4 KiB here. One read more for each 16 KiB would be unfair; 64 KiB for each idle
	// connection, too: the buffer grows when it was filled.
	buf := make([]byte, 4<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
		if n == len(buf) && n < bufferBytes {
			buf = make([]byte, bufferBytes)
		}
	}
}

// frames replies to all that is in its buffer by one write.
func frames(c net.Conn) {
	defer c.Close()
	r, w := bufio.NewReaderSize(c, bufferBytes), bufio.NewWriterSize(c, bufferBytes)
	var payload []byte
	for {
		header, err := r.Peek(frame.HeaderBytes)
		if err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(header))
		if n > frame.MaxPayloadBytes {
			return
		}
		if frame.HeaderBytes+n <= bufferBytes {
			whole, err := r.Peek(frame.HeaderBytes + n)
			if err != nil {
				return
			}
			err = reply(w, whole[frame.HeaderBytes:])
			if _, discardErr := r.Discard(len(whole)); err != nil || discardErr != nil {
				return
			}
		} else {
			payload = append(payload[:0], make([]byte, frame.HeaderBytes+n)...)
			if _, err := io.ReadFull(r, payload); err != nil {
				return
			}
			if err := reply(w, payload[frame.HeaderBytes:]); err != nil {
				return
			}
		}
		if !another(r) {
			if err := w.Flush(); err != nil {
				return
			}
		}
	}
}

// another reports whether the next frame can be read without waiting.
func another(r *bufio.Reader) bool {
	b, _ := r.Peek(r.Buffered())
	_, whole, err := frame.Length(b)
	return whole && err == nil
}

func reply(w *bufio.Writer, payload []byte) error {
	if _, err := w.Write(binary.BigEndian.AppendUint32(w.AvailableBuffer(), uint32(len(payload)))); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// proxy copies both ways; on Linux io.Copy between TCP connections is splice(2).
func proxy(c net.Conn, backend string) {
	defer c.Close()
	b, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer b.Close()
	go func() {
		_, _ = io.Copy(b, c)
		_ = b.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, b)
}
