package load

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// Client sends frames over one connection until its context is done or it has sent enough. Its counters may be read by
// any goroutine, the rest belongs to Run.
type Client struct {
	Address string
	Format  Format
	Number  uint64 // of the connection, part of the marks
	// Frames is how many to send; zero means until the context is done.
	Frames uint64
	// FramesPerSecond bounds the rate; zero means as fast as they are taken. A client that was held up catches up.
	FramesPerSecond int
	// PaddingBytes is how much longer to make the frames.
	PaddingBytes int
	// BatchBytes is how much to write at a time. Zero means 16 KiB.
	BatchBytes int
	// SendBufferBytes is SO_SNDBUF; zero leaves it.
	SendBufferBytes int
	// Connected, when set, gets the connection before anything is sent.
	Connected func(net.Conn)

	sent atomic.Uint64
}

// Sent is how many whole frames the kernel has taken.
func (c *Client) Sent() uint64 { return c.sent.Load() }

// Run connects, sends, and ends with FIN behind the last whole frame.
func (c *Client) Run(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if c.SendBufferBytes > 0 {
		if err := conn.(*net.TCPConn).SetWriteBuffer(c.SendBufferBytes); err != nil {
			return err
		}
	}
	if c.Connected != nil {
		c.Connected(conn)
	}
	batchBytes := c.BatchBytes
	if batchBytes == 0 {
		batchBytes = 16 << 10
	}
	padding := strings.Repeat("x", c.PaddingBytes)
	began := time.Now()
	var out, mark []byte
	for n := uint64(0); ctx.Err() == nil && (c.Frames == 0 || n < c.Frames); {
		out = out[:0]
		due := c.due(began)
		for len(out) < batchBytes && (c.Frames == 0 || n < c.Frames) && n < due {
			mark = AppendMark(mark[:0], c.Number, n, padding)
			out = c.Format(out, mark)
			n++
		}
		if len(out) == 0 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if _, err := conn.Write(out); err != nil {
			return fmt.Errorf("load: connection %d: %w", c.Number, err)
		}
		c.sent.Store(n)
	}
	return nil
}

// due is how many frames the rate allows by now.
func (c *Client) due(began time.Time) uint64 {
	if c.FramesPerSecond == 0 {
		return ^uint64(0)
	}
	return uint64(time.Since(began).Seconds() * float64(c.FramesPerSecond))
}
