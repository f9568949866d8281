package sim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// delivered sends a few bytes over a new connection, lets spoil at the receiving side, and returns what the next Waits
// say.
func delivered(t *testing.T, spoil func(w *World, in *stream)) (*World, error) {
	w := NewWorld(1, Config{})
	tr := w.Open()
	ln, err := tr.Listen(transport.ListenConfig{Network: "tcp", Address: "10.0.0.1:1"})
	require.NoError(t, err)
	tr.Submit(transport.Op{Kind: transport.Accept, Handle: ln, Token: 1})
	tr.Submit(transport.Op{
		Kind: transport.Connect, Token: 2, Dial: &transport.DialConfig{Network: "tcp", Address: "10.0.0.1:1"},
	})
	var client, server transport.Handle
	for client == 0 || server == 0 {
		out, err := tr.Wait(nil, -1)
		require.NoError(t, err)
		for _, c := range out {
			if c.Token == 1 {
				server = c.Handle
			} else {
				client = c.Handle
			}
		}
	}
	tr.Submit(transport.Op{
		Kind: transport.Send, Handle: client, Token: 3, Bufs: []*buffer.Buf{buffer.Wrap([]byte("0123456789"))},
	})
	spoil(w, w.conns[0].a.out)
	tr.Submit(transport.Op{Kind: transport.Recv, Handle: server, Token: 4, Limit: 10})
	for range 10 {
		if _, err := tr.Wait(nil, -1); err != nil {
			return w, err
		}
	}
	return w, nil
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	w, err := delivered(t, func(*World, *stream) {})
	require.NoError(t, err)
	require.NoError(t, w.Check())
	for _, c := range []struct {
		name  string
		spoil func(w *World, in *stream)
		want  string
	}{
		{"a byte changed", func(_ *World, in *stream) { in.buf[5] ^= 1 }, "are not those that were sent"},
		{
			"two bytes swapped", func(_ *World, in *stream) { in.buf[1], in.buf[2] = in.buf[2], in.buf[1] },
			"are not those",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := delivered(t, c.spoil)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, w.Check(), c.want)
		})
	}
	for _, c := range []struct {
		name  string
		spoil func(w *World, in *stream)
		want  string
	}{
		{"a byte too many", func(_ *World, in *stream) { in.buf = append(in.buf, 0) }, "positions"},
		{"credit from nowhere", func(_ *World, in *stream) { in.credit++ }, "positions"},
		{"a block lost", func(w *World, _ *stream) { w.transports[0].blocks-- }, "blocks"},
		{"a socket lost", func(w *World, _ *stream) { w.transports[0].stats.Open-- }, "open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := delivered(t, func(w *World, in *stream) {
				c.spoil(w, in)
				require.ErrorContains(t, w.Check(), c.want)
			})
			require.ErrorContains(t, err, c.want, "Wait answers what Check found")
			assert.ErrorContains(t, w.Check(), c.want)
		})
	}
}

// Two completions of one socket for the same moment, one of them held back until then: the one that was first is first.
func TestHeldBackCompletionIsNotOvertaken(t *testing.T) {
	w := NewWorld(1, Config{})
	tr := w.Open()
	src := w.source()
	w.at(5, func() { tr.post(&src, queued{c: transport.Completion{Token: 2}}) })
	src.last = w.now + 5
	tr.post(&src, queued{c: transport.Completion{Token: 1}})
	out, err := tr.Wait(nil, 10)
	require.NoError(t, err)
	require.Len(t, out, 2)
	assert.Equal(t, transport.Token(1), out[0].Token)
}

// A rate of zero draws nothing, so that a fault which is off, or which did not exist yet, changes no seed.
func TestFaultsThatAreOffDrawNothing(t *testing.T) {
	w, fresh := NewWorld(1, Config{}), NewWorld(1, Config{})
	for range 10 {
		assert.False(t, w.chance(0))
	}
	assert.Equal(t, fresh.rng.Uint64(), w.rng.Uint64())
}
