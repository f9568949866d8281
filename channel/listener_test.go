package channel_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

func TestAcceptErrorsPauseAndRecover(t *testing.T) {
	p := newPair(t, sim.Config{Faults: sim.Faults{AcceptError: 0.5}})
	var errs []error
	cfg := channel.Config{Init: initWith(func() []any { return []any{echo{}} })}
	ln, err := channel.Listen(p.server, channel.ListenerConfig{
		Transport: transport.ListenConfig{Network: "tcp", Address: address},
		Channel:   &cfg,
		Error:     func(err error) { errs = append(errs, err) },
	})
	require.NoError(t, err)
	var clients []*probe
	for range 50 {
		h := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("hello") }}
		clients = append(clients, h)
		c := channel.Config{Init: initWith(func() []any { return []any{h} })}
		dc := &transport.DialConfig{Network: "tcp", Address: address}
		channel.Dial(p.client, dc, &c, func(_ *channel.Channel, err error) {
			assert.NoError(t, err)
		})
	}
	p.until("everyone has an answer", func() bool {
		for _, h := range clients {
			if h.got.String() != "hello" {
				return false
			}
		}
		return true
	})
	assert.NotEmpty(t, errs)
	assert.EqualValues(t, 50, ln.Accepted)
}

// A server that resumes at each connection that ends would else ask for descriptors as often as it runs out of them.
func TestResumeDoesNotCutShortThePauseAfterAnError(t *testing.T) {
	p := newPair(t, sim.Config{Faults: sim.Faults{AcceptError: 1}})
	failed := 0
	ln, err := channel.Listen(p.server, channel.ListenerConfig{
		Transport:     transport.ListenConfig{Network: "tcp", Address: address},
		AcceptBackoff: 50 * time.Millisecond,
		Error:         func(error) { failed++ },
	})
	require.NoError(t, err)
	p.dial(&probe{})
	p.until("accepting failed", func() bool { return failed == 1 })
	for range 40 {
		ln.Pause()
		ln.Resume()
		p.run(time.Millisecond)
	}
	require.Equal(t, 1, failed)
	p.until("it is tried again", func() bool { return failed == 2 })
}

func TestPausedListenerLeavesConnectionsInTheBacklog(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.listen(func() []any { return []any{echo{}} })
	p.listener.Pause()
	h := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("hello") }}
	p.dial(h)
	p.run(50 * time.Millisecond)
	require.Zero(t, h.got.Len())
	p.listener.Resume()
	p.until("the answer", func() bool { return h.got.String() == "hello" })
}

func TestAListenerKeepsWhatIsNotAdmittedUntilThereIsRoom(t *testing.T) {
	p := newPair(t, sim.Config{})
	room := 1
	cfg := channel.Config{Init: initWith(func() []any { return []any{echo{}} })}
	ln, err := channel.Listen(p.server, channel.ListenerConfig{
		Transport: transport.ListenConfig{Network: "tcp", Address: address},
		Channel:   &cfg,
		Admit: func(*transport.Completion) (s channel.Screening) {
			if room == 0 {
				s.Outcome = channel.Hold
				return s
			}
			room--
			return s
		},
	})
	require.NoError(t, err)
	var clients []*probe
	for range 3 {
		h := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("hello") }}
		clients = append(clients, h)
		p.dial(h)
	}
	served := func() (n int) {
		for _, h := range clients {
			if h.got.String() == "hello" {
				n++
			}
		}
		return n
	}
	for want := 1; want <= 2; want++ {
		p.until("one has an answer", func() bool { return served() == want })
		p.run(50 * time.Millisecond)
		require.Equal(t, want, served(), "there is no room for more")
		if want == 1 {
			ln.Readmit() // without room
			p.run(50 * time.Millisecond)
			require.Equal(t, want, served())
			room = 1
			ln.Readmit()
		}
	}
	ln.Close(nil)
	p.until("who waits is refused", func() bool {
		gone := 0
		for _, h := range clients {
			gone += h.inactive
		}
		return gone == 1
	})
}

func TestClosedListenerRefusesAndItsChannelsLiveOn(t *testing.T) {
	p := newPair(t, sim.Config{})
	h := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("hello") }}
	p.connect(echo{}, h)
	p.until("the answer", func() bool { return h.got.String() == "hello" })
	done := 0
	p.listener.Close(func() { done++ })
	p.listener.Close(func() { done++ })
	p.until("it is closed", func() bool { return done == 2 })
	p.listener.Close(func() { done++ })
	assert.Equal(t, 3, done)
	require.NoError(t, h.ctx.Write(" again"))
	p.until("the answer", func() bool { return h.got.String() == "hello again" })
	var err error
	dc := &transport.DialConfig{Network: "tcp", Address: address}
	channel.Dial(p.client, dc, nil, func(_ *channel.Channel, e error) { err = e })
	p.until("the dial fails", func() bool { return err != nil })
}

func TestFailingInitClosesTheConnectionAndNothingElse(t *testing.T) {
	for _, init := range []func(*pipeline.Pipeline) error{
		func(*pipeline.Pipeline) error { return errTest },
		func(*pipeline.Pipeline) error { panic("in Init") },
		nil,
	} {
		p := newPair(t, sim.Config{})
		calls := 0
		cfg := channel.Config{Init: func(pl *pipeline.Pipeline) error {
			if calls++; calls == 1 && init != nil {
				return init(pl)
			}
			return pl.AddLast("echo", echo{})
		}}
		_, err := channel.Listen(p.server, channel.ListenerConfig{
			Transport: transport.ListenConfig{Network: "tcp", Address: address}, Channel: &cfg,
		})
		require.NoError(t, err)
		h := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("hello") }}
		p.dial(h)
		if init != nil {
			p.until("the first client is closed", func() bool { return h.inactive == 1 })
			h = &probe{onActive: h.onActive}
			p.dial(h)
		}
		p.until("the answer", func() bool { return h.got.String() == "hello" })
	}
}

// bomb panics in the event with its name.
type bomb struct{ in string }

func (b *bomb) explode(in string) error {
	if b.in == in {
		b.in = ""
		panic("bomb in " + in)
	}
	return nil
}

func (b *bomb) HandlerAdded(*pipeline.Context) error { return b.explode("added") }
func (b *bomb) ChannelActive(ctx *pipeline.Context) error {
	err := b.explode("active")
	ctx.FireActive()
	return err
}

func (b *bomb) ChannelRead(ctx *pipeline.Context, msg any) error {
	ctx.FireRead(msg)
	return b.explode("read")
}
func (b *bomb) ChannelReadComplete(*pipeline.Context) error { return b.explode("readcomplete") }
func (b *bomb) ChannelReadClosed(ctx *pipeline.Context) error {
	_ = ctx.Close()
	return b.explode("readclosed")
}

func (b *bomb) ChannelInactive(ctx *pipeline.Context) error {
	ctx.FireInactive()
	return b.explode("inactive")
}

func (b *bomb) Write(ctx *pipeline.Context, msg any) error {
	if err := ctx.Write(msg); err != nil {
		return err
	}
	return b.explode("write")
}

func (b *bomb) Flush(ctx *pipeline.Context) error {
	if err := ctx.Flush(); err != nil {
		return err
	}
	return b.explode("flush")
}
func (b *bomb) HandlerRemoved(*pipeline.Context) error { return b.explode("removed") }

func TestPanicInAnyEventClosesThatChannelOnly(t *testing.T) {
	for _, in := range []string{
		"added", "active", "read", "readcomplete", "readclosed", "inactive", "write", "flush", "removed",
	} {
		t.Run(in, func(t *testing.T) {
			p := newPair(t, sim.Config{})
			first := true
			var server *probe
			p.listen(func() []any {
				if first {
					first = false
					server = &probe{onRead: func(ctx *pipeline.Context, b []byte) error { return ctx.Write(b) }}
					return []any{&bomb{in: in}, server}
				}
				return []any{echo{}}
			})
			send := func(ctx *pipeline.Context) error { return ctx.Write("hello") }
			victim := &probe{onActive: send, onRead: func(ctx *pipeline.Context, _ []byte) error { return ctx.Close() }}
			p.dial(victim)
			neighbour := &probe{onActive: send}
			p.dial(neighbour)
			p.until("the victim is closed", func() bool { return victim.inactive == 1 })
			p.until("the neighbour has its answer", func() bool { return neighbour.got.String() == "hello" })
			require.EqualValues(t, 1, p.server.Stats().Panics)
			switch in {
			case "added":
				assert.Zero(t, server.inactive, "it was never active")
			default:
				assert.Equal(t, 1, server.inactive)
			}
			p.until("the closed hook ran", func() bool { return len(p.closed) >= 2 })
			switch in {
			case "inactive", "removed":
			default:
				var cause error
				for _, c := range p.closed {
					cause = errors.Join(cause, c.Cause())
				}
				require.ErrorIs(t, cause, channel.ErrPanic)
				assert.ErrorContains(t, cause, "bomb")
			}
		})
	}
}

func TestHandlerDialsOnItsOwnLoop(t *testing.T) {
	p := newPair(t, sim.Config{})
	inner := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("inner") }}
	var refused error
	outer := &probe{onActive: func(ctx *pipeline.Context) error {
		if err := ctx.Dial("tcp", "10.0.0.9:1", nil, func(err error) { refused = err }); err != nil {
			return err
		}
		return ctx.Dial("tcp", address, initWith(func() []any { return []any{inner} }), nil)
	}}
	p.connect(echo{}, outer)
	p.until("the inner channel works", func() bool { return inner.got.String() == "inner" && refused != nil })
}

func TestChannelThatClosesGivesUpItsDials(t *testing.T) {
	p := newPair(t, sim.Config{})
	outer := &probe{}
	p.connect(echo{}, outer)
	p.until("active", func() bool { return outer.active == 1 })
	var told []error
	inner := &probe{}
	initInner := initWith(func() []any { return []any{inner} })
	require.NoError(t, outer.ctx.Dial("tcp", address, initInner, func(err error) { told = append(told, err) }))
	outer.ctx.Abort(errTest) // before the answer can have come
	p.until("both are told", func() bool { return outer.inactive == 1 && len(told) == 1 })
	assert.ErrorIs(t, told[0], transport.ErrCanceled)
	assert.Zero(t, inner.active)

	require.NoError(t, outer.ctx.Dial("tcp", address, initInner, nil), "to connect again")
	p.until("connected again", func() bool { return inner.active == 1 })
}

// Accepted panics for each that has waited: whoever waits behind is accepted all the same, and so are those to come.
func TestAPanicInAcceptedDoesNotKeepAListenerPaused(t *testing.T) {
	p := newPair(t, sim.Config{})
	room, panics := 0, 0
	cfg := channel.Config{Init: initWith(func() []any { return []any{echo{}} })}
	ln, err := channel.Listen(p.server, channel.ListenerConfig{
		Transport: transport.ListenConfig{Network: "tcp", Address: address},
		Channel:   &cfg,
		Admit:     untilFull(&room),
		Accepted: func(*channel.Channel, any) {
			if panics < 3 {
				panics++
				panic("in Accepted")
			}
		},
	})
	require.NoError(t, err)
	greet := func() *probe {
		h := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("hello") }}
		p.dial(h)
		return h
	}
	clients := []*probe{greet(), greet(), greet()}
	p.run(50 * time.Millisecond)
	room = 10
	assert.PanicsWithValue(t, "in Accepted", ln.Readmit)
	clients = append(clients, greet())
	for _, h := range clients {
		p.until("an answer", func() bool { return h.got.String() == "hello" })
	}
	assert.Equal(t, 3, panics)
}
