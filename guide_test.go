//go:build linux

package weir_test

// The code of docs/guide.md, which TestTheGuideShowsCodeThatIsCompiled compares with this file.

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

// counter counts what comes in and passes it on.
type counter struct{ bytes int }

func (c *counter) ChannelRead(ctx *pipeline.Context, msg any) error {
	if b, ok := msg.(*buffer.Buf); ok {
		c.bytes += b.Len()
	}
	ctx.FireRead(msg) // without this, the message ends here
	return nil
}

type handler struct{}

func (h *handler) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		ctx.Resume()
	} else {
		ctx.Pause()
	}
	return nil
}

// server is what the guide's pipeline belongs to.
type server struct {
	sinkLevel *watermark.Shared
	pool      *offload.Pool
}

func (s *server) parse(_ context.Context, p []byte) ([]byte, error) { return p, nil }

func (s *server) store(ctx *pipeline.Context, record []byte, err error) error {
	return errors.Join(err, ctx.WriteBytes(record))
}

func (s *server) init(p *pipeline.Pipeline) error {
	level, err := watermark.New(watermark.Config{Shared: []*watermark.Shared{s.sinkLevel}})
	if err != nil {
		return err
	}
	split, err := codec.SplitLines(codec.LinesConfig{MaxBytes: 64 << 10})
	if err != nil {
		return err
	}
	work, err := offload.Bytes(s.pool, s.parse, s.store) // parse on the pool, store on the loop, in order
	if err != nil {
		return err
	}
	return errors.Join(
		p.AddLast("watermark", level), // first: it decides how much is read
		p.AddLast("framer", codec.NewFramer(split)),
		p.AddLast("work", work),
	)
}

func otherGoroutines(ctx *pipeline.Context, compute func() []byte) {
	ref := ctx.Ref()
	go func() {
		result := compute()
		if err := ref.TryWrite(result); errors.Is(err, pipeline.ErrFull) {
			// too much is pending: nothing was written
		}
	}()
}

func guideServer() {
	srv := &weir.Server{
		Init:    func(p *pipeline.Pipeline) error { return p.AddLast("echo", echo{}) },
		Channel: channel.Config{MaxPendingBytes: 4 << 20},
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted.Done()
		stop() // a second signal ends the process at once
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			log.Print(err) // connections were cut off, or a handler is stuck
		}
	}()
	if err := srv.ListenAndServe("tcp", ":9000"); !errors.Is(err, weir.ErrServerClosed) {
		log.Fatal(err)
	}
}

// activated is the listener that systemd passes for a socket unit (sd_listen_fds(3)): descriptor 3. It returns nil when
// there is none.
func activated() (net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") == "" {
		return nil, nil
	}
	f := os.NewFile(3, "systemd")
	defer f.Close()
	return net.FileListener(f) // a duplicate; Server.Serve takes it
}

func closedHook() channel.Config {
	return channel.Config{
		Closed: func(c *channel.Channel) { // on the loop, after the last handler has gone
			if cause := c.Cause(); cause != nil {
				slog.Warn("connection lost", "remote", c.RemoteAddr(), "cause", cause)
			}
		},
	}
}

var errNetstring = errors.New("not a netstring")

// netstring decodes "5:hello,".
type netstring struct{ maxBytes uint64 }

func (d netstring) Decode(in []byte) (text []byte, n int, err error) {
	colon := bytes.IndexByte(in, ':')
	if colon < 0 {
		if len(in) > 10 { // a peer that never sends a colon
			return nil, 0, errNetstring
		}
		return nil, 0, codec.ErrShort
	}
	size, err := strconv.ParseUint(string(in[:colon]), 10, 32)
	if err != nil || size > d.maxBytes {
		return nil, 0, fmt.Errorf("%w of at most %d bytes: %q", errNetstring, d.maxBytes, in[:colon])
	}
	end := colon + 1 + int(size)
	switch {
	case len(in) <= end:
		return nil, 0, codec.ErrShort
	case in[end] != ',':
		return nil, 0, errNetstring
	}
	return in[colon+1 : end], end + 1, nil // text is valid until the function below returns
}

func initNetstring(p *pipeline.Pipeline) error {
	return p.AddLast("netstrings", codec.Handle(netstring{maxBytes: 1 << 20},
		func(ctx *pipeline.Context, text []byte) error { return ctx.WriteBytes(text, []byte("\n")) }))
}

// download sends a response of any size: as much as the peer takes, and the rest when there is room again.
type download struct {
	chunk []byte
	left  int
}

func (d *download) ChannelRead(ctx *pipeline.Context, _ any) error {
	ctx.Pause() // no further request before this one is served
	d.left = 64 << 20
	return d.more(ctx)
}

func (d *download) ChannelWritabilityChanged(ctx *pipeline.Context) error { return d.more(ctx) }

func (d *download) more(ctx *pipeline.Context) error {
	for d.left > 0 && ctx.Writable() {
		n := min(d.left, len(d.chunk))
		if err := ctx.Write(d.chunk[:n]); err != nil {
			return err
		}
		if d.left -= n; d.left == 0 {
			ctx.Resume()
		}
	}
	return nil
}

// rpcClient calls a server whose messages are framed by their length and begin with a number of 8 bytes.
type rpcClient struct {
	ref     pipeline.Ref
	last    uint64                 // loop
	waiting map[uint64]chan []byte // loop
}

func dialRPC(ctx context.Context, d *weir.Dialer, address string) (*rpcClient, error) {
	c := &rpcClient{waiting: map[uint64]chan []byte{}}
	ref, err := d.Dial(ctx, "tcp", address, func(p *pipeline.Pipeline) error {
		split, err := codec.SplitLengthField(codec.LengthFieldConfig{Width: 4, Strip: 4})
		if err != nil {
			return err
		}
		length, err := codec.NewLengthFieldPrepender(codec.LengthFieldPrependerConfig{Width: 4})
		if err != nil {
			return err
		}
		return errors.Join(p.AddLast("length", length), p.AddLast("replies", codec.HandleFrames(split, c.reply)))
	})
	c.ref = ref
	return c, err
}

func (c *rpcClient) reply(_ *pipeline.Context, frame []byte) error {
	if len(frame) < 8 {
		return fmt.Errorf("reply of %d bytes", len(frame))
	}
	id := binary.BigEndian.Uint64(frame)
	if reply := c.waiting[id]; reply != nil {
		delete(c.waiting, id)
		reply <- bytes.Clone(frame[8:]) // it has room for one
	}
	return nil
}

func (c *rpcClient) call(ctx context.Context, request []byte) ([]byte, error) {
	reply := make(chan []byte, 1)
	var id uint64
	err := c.ref.Execute(func(ctx *pipeline.Context) { // ErrFull: too many calls wait for the loop
		c.last++
		id = c.last
		c.waiting[id] = reply
		_ = ctx.Write(append(binary.BigEndian.AppendUint64(nil, id), request...)) // it fails only when the channel closes
	})
	if err != nil {
		return nil, err
	}
	select {
	case p := <-reply:
		return p, nil
	case <-c.ref.Closed():
		return nil, pipeline.ErrClosed
	case <-ctx.Done():
		_ = c.ref.Execute(func(*pipeline.Context) { delete(c.waiting, id) }) // runs after the other
		return nil, ctx.Err()
	}
}

func export(srv *weir.Server) (stop func(), err error) {
	return srv.Every(10*time.Second, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		st, err := srv.Stats(ctx) // with err, some loops have not replied: what there is, is there
		slog.Info("weir", "open", st.Open, "accepted", st.Accepted, "accept_errors", st.AcceptErrors, "err", err)
		for i, l := range st.Loops {
			slog.Info("weir loop", "loop", i, "stuck", l.Stuck, "open", l.Open, "turns", l.Loop.Turns, "panics", l.Loop.Panics)
		}
	})
}

func TestTheGuideShowsCodeThatIsCompiled(t *testing.T) {
	plain := func(text string) string { // without indentation
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString(strings.TrimLeft(line, "\t "))
		}
		return b.String()
	}
	var sources string
	for _, name := range []string{"guide_test.go", "harness_test.go", "example_test.go", "examples/echo/main.go"} {
		sources += read(t, name)
	}
	compiled := plain(sources)
	blocks := goBlocks(read(t, "docs/guide.md"))
	require.Greater(t, len(blocks), 9)
	for _, block := range blocks {
		assert.True(t, strings.Contains(compiled, plain(block)), "not compiled:\n%s", block)
	}
}

func TestTheGuidesPipelineWorks(t *testing.T) {
	pool, err := offload.NewPool(offload.PoolConfig{Workers: 2})
	require.NoError(t, err)
	defer func() { assert.NoError(t, pool.Close(background(t))) }()
	level, err := watermark.NewShared(watermark.SharedConfig{HighBytes: 1 << 20})
	require.NoError(t, err)
	s := &server{sinkLevel: level, pool: pool}
	c := connect(t, "tcp", startTCP(t, &weir.Server{Loops: 1, Init: s.init}))
	_, err = io.WriteString(c, "hel\nlo\n")
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
}

func TestTheGuidesDecoderDecodesWhateverTheSplit(t *testing.T) {
	addr := startTCP(t, &weir.Server{Loops: 1, Init: initNetstring})
	const stream, want = "5:hello,0:,11:hello\nworld,", "hello\n\nhello\nworld\n"
	for at := range stream {
		c := connect(t, "tcp", addr)
		require.NoError(t, c.(*net.TCPConn).SetNoDelay(true))
		for _, piece := range []string{stream[:at], stream[at:]} {
			_, err := io.WriteString(c, piece)
			require.NoError(t, err)
		}
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "split at %d", at)
	}
	for _, bad := range []string{"x:", "5:hello;", "1048577:", "12345678901", "-1:,"} {
		c := connect(t, "tcp", addr)
		_, err := io.WriteString(c, bad)
		require.NoError(t, err)
		_, err = io.ReadAll(c)
		_ = err // closed, or reset
	}
}

func TestTheGuidesDownloadIsLargerThanWhatMayBePending(t *testing.T) {
	srv := &weir.Server{Loops: 1, Channel: channel.Config{MaxPendingBytes: 1 << 20}}
	srv.Init = only(func() any { return &download{chunk: make([]byte, 32<<10)} })
	c := connect(t, "tcp", startTCP(t, srv))
	for range 2 {
		_, err := io.WriteString(c, "x")
		require.NoError(t, err)
		n, err := io.CopyN(io.Discard, c, 64<<20)
		require.NoError(t, err, "after %d bytes", n)
	}
}

func TestTheGuidesClientGetsEachReplyToItsCall(t *testing.T) {
	addr := startTCP(t, &weir.Server{Loops: 1, Init: initEcho}) // a reply is the request
	d := &weir.Dialer{Logger: quiet()}
	defer d.Close()
	require.NoError(t, ready(d))
	client, err := dialRPC(background(t), d, addr)
	require.NoError(t, err)
	require.NoError(t, all(20, func(i int) error {
		for n := range 200 {
			request := fmt.Sprintf("call %d of %d", n, i)
			got, err := client.call(context.Background(), []byte(request))
			if errors.Is(err, pipeline.ErrFull) {
				continue
			}
			if err != nil || string(got) != request {
				return fmt.Errorf("%s: %q, %w", request, got, err)
			}
		}
		return nil
	}))
	require.NoError(t, client.ref.Close())
	<-client.ref.Closed()
	_, err = client.call(context.Background(), nil)
	require.ErrorIs(t, err, pipeline.ErrClosed)
}

func TestTheGuidesListenerIsNoneWithoutSystemd(t *testing.T) {
	t.Setenv("LISTEN_PID", "")
	l, err := activated()
	require.NoError(t, err)
	assert.Nil(t, l)
}

// What is only compiled.
var _ = []any{otherGoroutines, guideServer, closedHook, export, (*counter)(nil), (*handler)(nil)}
