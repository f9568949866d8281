package sim_test

import (
	"io"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

var (
	here  = netip.MustParseAddrPort("192.0.2.1:80")
	there = netip.MustParseAddrPort("192.0.2.2:50000")
)

// played returns a Connect with a Peer, in a world in which no time passes by itself.
func played(t *testing.T) (w *sim.World, n *node, h transport.Handle, p *sim.Peer) {
	w = sim.NewWorld(1, sim.Config{Latency: -1, TurnTime: -1, Scrub: true, SendNow: true, Answer: func(d *sim.Dialing) {
		p = d.Connect(here, there)
	}})
	n = open(t, w)
	c := ended(w, n.dial(), n)
	require.NoError(t, c.Err)
	assert.Equal(t, there, c.Addr)
	assert.Equal(t, c.Handle, p.Handle())
	assert.Equal(t, here.String(), n.LocalAddr(c.Handle).String())
	t.Cleanup(func() {
		require.NoError(t, w.Check())
		require.NoError(t, n.Close())
		assert.Zero(t, n.Pool().Outstanding())
		assert.Zero(t, w.Now())
	})
	return w, n, c.Handle, p
}

func TestWhatAPeerWritesIsNeitherJoinedNorCutByALimit(t *testing.T) {
	_, n, h, p := played(t)
	p.Write([]byte("ab"))
	p.Write([]byte("cdef"))
	p.Write(nil)
	p.Write(make([]byte, 17<<10))
	assert.Equal(t, 3, p.Unread())
	n.recv(h, 3)
	var sizes []int
	n.seen = func(c transport.Completion) { sizes = append(sizes, c.N) }
	n.wait(0)
	assert.Equal(t, []int{2, 4}, sizes, "a part of the second and all of it")
	assert.EqualValues(t, 6, p.Taken())
	recv := n.recv(h, 1<<20)
	n.wait(0)
	assert.Equal(t, []int{2, 4, 16 << 10, 1 << 10}, sizes, "a block at a time")
	assert.Zero(t, p.Unread())
	p.CloseWrite()
	p.Write([]byte("too late"))
	n.wait(0)
	assert.Equal(t, io.EOF, n.done[recv].Err)
}

func TestScrubOverwritesWhatWasBorrowed(t *testing.T) {
	_, n, h, p := played(t)
	var borrowed []byte
	n.seen = func(c transport.Completion) {
		if c.Buf != nil {
			borrowed = c.Buf.Bytes()
		}
	}
	n.recv(h, 1<<20)
	p.Write([]byte("ab"))
	n.wait(0)
	assert.Equal(t, "\xdb\xdb", string(borrowed))
}

func TestAStalledPeerTakesWhatItIsAllowed(t *testing.T) {
	_, n, h, p := played(t)
	p.Stall()
	got, err := n.SendNow(h, wrap([]byte("abc")))
	assert.Zero(t, got)
	assert.Equal(t, transport.ErrWouldBlock, err)
	send := n.send(h, []byte("abcdef"))
	n.wait(0)
	assert.Empty(t, p.Read(nil))
	p.Allow(2)
	p.Allow(1)
	assert.Equal(t, "abc", string(p.Read(nil)))
	p.Unstall()
	n.wait(0)
	assert.Contains(t, n.done, send)
	assert.Equal(t, ">def", string(p.Read([]byte(">"))))
	assert.EqualValues(t, 6, p.Received())
	assert.False(t, p.Finished())
	n.submit(transport.Op{Kind: transport.CloseWrite, Handle: h})
	n.wait(0)
	n.wait(0)
	assert.True(t, p.Finished())
}

func TestAPeerResetsTheConnection(t *testing.T) {
	_, n, h, p := played(t)
	recv := n.recv(h, 1<<20)
	p.Write([]byte("last"))
	p.Reset()
	n.wait(0)
	assert.Equal(t, "last", string(n.data[recv]))
	assert.ErrorIs(t, n.done[recv].Err, syscall.ECONNRESET)
	assert.True(t, p.Broken())
	p.CloseWrite()
	p.Write([]byte("x"))
	assert.EqualValues(t, 4, p.Taken())
}

func TestAConnectWaitsForItsAnswer(t *testing.T) {
	var asked []*sim.Dialing
	w := sim.NewWorld(1, sim.Config{Answer: func(d *sim.Dialing) { asked = append(asked, d) }})
	n := open(t, w)
	failed, canceled := n.dial(), n.dial()
	n.wait(0)
	require.Len(t, asked, 2)
	assert.Equal(t, address, asked[0].Config.Address)
	asked[0].Fail(syscall.ECONNREFUSED)
	n.submit(transport.Op{Kind: transport.Cancel, Target: transport.Connect, ConnectToken: canceled})
	assert.ErrorIs(t, ended(w, failed, n).Err, syscall.ECONNREFUSED)
	assert.ErrorIs(t, ended(w, canceled, n).Err, transport.ErrCanceled)
	for _, d := range asked {
		assert.True(t, d.Over())
		assert.Nil(t, d.Connect(here, there))
		d.Fail(io.EOF)
	}
	require.NoError(t, n.Close())
}
