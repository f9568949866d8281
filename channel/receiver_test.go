package channel_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// far is a pair whose server loop accepts for a third one, which turns only when the test wants it.
type far struct {
	*pair
	there    *loop.Loop
	receiver *channel.Receiver
	clients  []*probe
	rooms    int // calls of Room
	undone   int // calls of NotAdmitted
	accepted int
	panics   int // that Accepted still has to make
}

func newFar(t *testing.T, most int, admit func(*transport.Completion) channel.Screening) *far {
	f := &far{pair: newPair(t, sim.Config{})}
	f.there = f.loop()
	cfg := channel.Config{Init: initWith(func() []any { return []any{echo{}} })}
	var err error
	f.receiver, err = channel.NewReceiver(f.there, channel.ReceiverConfig{
		Channel: &cfg, MaxWaiting: most,
		Room:        func() { f.rooms++ },
		NotAdmitted: func(any) { f.undone++ },
		Accepted: func(*channel.Channel, any) {
			f.accepted++
			if f.panics > 0 {
				f.panics--
				panic("in Accepted")
			}
		},
	})
	require.NoError(t, err)
	f.listener, err = channel.Listen(f.server, channel.ListenerConfig{
		Transport: transport.ListenConfig{Network: "tcp", Address: address},
		Route:     func(netip.AddrPort) *channel.Receiver { return f.receiver },
		Admit:     admit,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			require.NoError(t, f.there.Close())
			require.Zero(t, f.there.Pool().Outstanding())
		}
	})
	return f
}

// greet has n more clients say hello, and gives the listener time.
func (f *far) greet(n int) {
	for range n {
		h := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("hello") }}
		f.clients = append(f.clients, h)
		f.dial(h)
	}
	f.run(10 * time.Millisecond)
}

// turnThere turns the third loop until it has nothing to do, and the others with it.
func (f *far) turnThere() {
	for range 100 {
		_, err := f.there.RunOnce(0)
		require.NoError(f.t, err)
		f.step()
	}
}

func (f *far) answers() (n int) {
	for _, h := range f.clients {
		if h.got.String() == "hello" {
			n++
		}
	}
	return n
}

func (f *far) ended() (n int) {
	for _, h := range f.clients {
		n += h.inactive
	}
	return n
}

func TestAReceiverServesWhatAnotherLoopAccepts(t *testing.T) {
	f := newFar(t, 0, nil)
	f.greet(200) // more than one turn takes
	require.Equal(t, 200, f.receiver.Waiting())
	require.Zero(t, f.answers())
	f.turnThere()
	assert.Equal(t, 200, f.answers())
	assert.Zero(t, f.receiver.Waiting())
	assert.EqualValues(t, 200, f.listener.Accepted)
	assert.Zero(t, f.server.Transport().Stats().Open-1, "only the listener is left there")
}

func TestAReceiverTakesAsManyAsItMay(t *testing.T) {
	const most = 4
	f := newFar(t, most, nil)
	f.greet(most - 1)
	require.False(t, f.receiver.Full())
	f.greet(1)
	require.True(t, f.receiver.Full())
	f.greet(3)
	require.Equal(t, most, f.receiver.Waiting())
	require.EqualValues(t, most, f.listener.Accepted)
	f.turnThere()
	require.Equal(t, most, f.answers())
	require.Equal(t, 1, f.rooms, "told once")
	f.listener.Readmit()
	f.run(10 * time.Millisecond)
	f.turnThere()
	assert.Equal(t, most+3, f.answers())
	assert.Zero(t, f.undone)
}

func TestWhatIsNotAdmittedTakesNoPlaceAtAReceiver(t *testing.T) {
	room := 1
	f := newFar(t, 2, untilFull(&room))
	f.greet(3)
	require.Equal(t, 1, f.receiver.Waiting())
	room = 2
	f.listener.Readmit()
	require.Equal(t, 2, f.receiver.Waiting(), "there is a place for one more")
	f.turnThere()
	room = 1
	f.listener.Readmit()
	f.turnThere()
	assert.Equal(t, 3, f.answers())
}

// Nothing is kept of what was on its way, whichever way the receiver ends.
func TestWhatIsOnItsWayEndsWithTheReceiver(t *testing.T) {
	for name, end := range map[string]func(f *far){
		"Close":          func(f *far) { f.receiver.Close() },
		"its loop's end": func(f *far) { require.NoError(f.t, f.there.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t, 0, nil)
			f.greet(3)
			end(f)
			f.until("the clients are told", func() bool { return f.ended() == 3 })
			require.Equal(t, 3, f.undone+f.accepted) // a loop that ends may come to it, and closes the channels
			f.greet(2)                               // the listener does not know
			f.until("those that come later, too", func() bool { return f.ended() == 5 })
			assert.Equal(t, 5, f.undone+f.accepted)
			assert.GreaterOrEqual(t, f.undone, 2)
			assert.Zero(t, f.receiver.Waiting())
		})
	}
}

// untilFull lets as many pass as there is room for.
func untilFull(room *int) func(*transport.Completion) channel.Screening {
	return func(*transport.Completion) (s channel.Screening) {
		if *room--; *room < 0 {
			s.Outcome = channel.Hold
		}
		return s
	}
}

func TestAPanicInAcceptedCostsAReceiverNothingElse(t *testing.T) {
	f := newFar(t, 0, nil)
	f.panics = 2
	f.greet(5)
	f.turnThere()
	assert.Equal(t, 5, f.accepted)
	assert.Equal(t, 5, f.answers())
}

func TestAReceiverRefusesBadSettings(t *testing.T) {
	p := newPair(t, sim.Config{})
	_, err := channel.NewReceiver(p.server, channel.ReceiverConfig{MaxWaiting: -1})
	require.ErrorContains(t, err, "MaxWaiting -1")
	_, err = channel.NewReceiver(p.server, channel.ReceiverConfig{Channel: &channel.Config{CloseTimeout: -1}})
	require.ErrorContains(t, err, "CloseTimeout")
}
