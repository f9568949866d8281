package channel_test

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// pair is a server loop and a client loop on one simulated network, driven by the test's goroutine.
type pair struct {
	t              *testing.T
	world          *sim.World
	server, client *loop.Loop
	listener       *channel.Listener
	closed         []*channel.Channel // by Config.Closed of either side
	serverConfig   channel.Config
	clientConfig   channel.Config
	sends          *recorder // of the client's loop
}

const address = "10.0.0.1:7000"

func newPair(t *testing.T, world sim.Config) *pair {
	return newSeededPair(t, 1, world)
}

func newSeededPair(t *testing.T, seed uint64, world sim.Config) *pair {
	p := &pair{t: t, world: sim.NewWorld(seed, world)}
	p.server, p.client = p.loop(), p.loop()
	t.Cleanup(p.close)
	return p
}

func (p *pair) loop() *loop.Loop {
	l, err := loop.New(loop.Config{
		Open: func(bool) (transport.Transport, error) {
			p.sends = &recorder{Transport: p.world.Open()}
			return p.sends, nil
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(p.t, err)
	require.NoError(p.t, l.Open())
	return l
}

// listen starts the server side with one probe per connection, made by the function.
func (p *pair) listen(handlers func() []any) {
	cfg := p.serverConfig
	cfg.Init = initWith(handlers)
	cfg.Closed = func(c *channel.Channel) { p.closed = append(p.closed, c) }
	ln, err := channel.Listen(p.server, channel.ListenerConfig{
		Transport: transport.ListenConfig{Network: "tcp", Address: address},
		Channel:   &cfg,
	})
	require.NoError(p.t, err)
	p.listener = ln
}

func initWith(handlers func() []any) func(*pipeline.Pipeline) error {
	return func(pl *pipeline.Pipeline) error {
		for _, h := range handlers() {
			if err := pl.AddLast("", h); err != nil {
				return err
			}
		}
		return nil
	}
}

// dial connects from the client's loop and turns until it is done.
func (p *pair) dial(handlers ...any) *channel.Channel {
	c, err := p.tryDial(handlers...)
	require.NoError(p.t, err)
	return c
}

// connect listens with the server's handler, or several as []any, and dials with those of the client.
func (p *pair) connect(server any, client ...any) *channel.Channel {
	handlers, several := server.([]any)
	if !several {
		handlers = []any{server}
	}
	p.listen(func() []any { return handlers })
	return p.dial(client...)
}

func (p *pair) tryDial(handlers ...any) (*channel.Channel, error) {
	var c *channel.Channel
	var failed error
	cfg := p.clientConfig
	cfg.Init = initWith(func() []any { return handlers })
	cfg.Closed = func(c *channel.Channel) { p.closed = append(p.closed, c) }
	dc := &transport.DialConfig{Network: "tcp", Address: address}
	channel.Dial(p.client, dc, &cfg, func(ch *channel.Channel, err error) {
		c, failed = ch, err
	})
	p.until("the dial is done", func() bool { return c != nil || failed != nil })
	return c, failed
}

// until turns both loops until the condition holds.
func (p *pair) until(what string, ok func() bool) {
	p.t.Helper()
	for range 400_000 {
		if ok() {
			return
		}
		p.step()
	}
	require.FailNow(p.t, "never: "+what)
}

// run turns both loops for some virtual time.
func (p *pair) run(d time.Duration) {
	p.t.Helper()
	tick := max(shortTick, d/1000)
	for end := p.world.Now() + d; p.world.Now() < end; {
		p.turn(tick)
	}
}

// shortTick is how long a loop may sleep in a turn; it wakes earlier when something happens.
const shortTick = 50 * time.Microsecond

func (p *pair) step() { p.turn(shortTick) }

func (p *pair) turn(sleep time.Duration) {
	_, err := p.server.RunOnce(sleep)
	require.NoError(p.t, err)
	_, err = p.client.RunOnce(sleep)
	require.NoError(p.t, err)
}

func (p *pair) close() {
	if p.t.Failed() {
		return
	}
	pools := []*buffer.Pool{p.server.Pool(), p.client.Pool()}
	require.NoError(p.t, p.server.Close())
	require.NoError(p.t, p.client.Close())
	for i, pool := range pools {
		require.Zerof(p.t, pool.Outstanding(), "pool %d is not balanced: %v", i, pool.Leaks())
	}
	require.NoError(p.t, p.world.Check())
}

// probe is a handler that records what happens and does what the test wants.
type probe struct {
	ctx      *pipeline.Context
	got      bytes.Buffer
	events   []string
	active   int
	inactive int
	cause    error

	onActive   func(ctx *pipeline.Context) error
	onRead     func(ctx *pipeline.Context, b []byte) error
	onWritable func(ctx *pipeline.Context) error
	onInactive func(ctx *pipeline.Context) error
}

func (h *probe) ChannelActive(ctx *pipeline.Context) error {
	h.ctx = ctx
	h.active++
	h.events = append(h.events, "active")
	if h.onActive != nil {
		return h.onActive(ctx)
	}
	return nil
}

func (h *probe) ChannelRead(ctx *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf).Bytes()
	h.got.Write(b)
	h.events = append(h.events, "read")
	if h.onRead != nil {
		return h.onRead(ctx, b)
	}
	return nil
}

func (h *probe) ChannelInactive(ctx *pipeline.Context) error {
	h.inactive++
	h.cause = ctx.Cause()
	h.events = append(h.events, "inactive")
	if h.onInactive != nil {
		return h.onInactive(ctx)
	}
	return nil
}

func (h *probe) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		h.events = append(h.events, "writable")
	} else {
		h.events = append(h.events, "unwritable")
	}
	if h.onWritable != nil {
		return h.onWritable(ctx)
	}
	return nil
}

// halfProbe also has ReadClosed, so that its channel stays open when the peer has finished.
type halfProbe struct {
	probe
	readClosed int
	onClosed   func(ctx *pipeline.Context) error
}

func (h *halfProbe) ChannelReadClosed(ctx *pipeline.Context) error {
	h.readClosed++
	h.events = append(h.events, "readclosed")
	if h.onClosed != nil {
		return h.onClosed(ctx)
	}
	return nil
}

// echo writes back what it reads.
type echo struct{}

func (echo) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

// randomBytes is the same for the same seed.
func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

var errTest = errors.New("test")

// openFile returns a file with this content; it is closed when the test ends.
func openFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}
