//go:build linux

package weir_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

func TestASlowMemberMissesWholeMessagesAndHarmsNobody(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const members, messages, size, behind = 10, 3000, 4096, 256 << 10
		srv := &weir.Server{
			Transport: kind, Loops: 2,
			Socket: transport.SocketConfig{SendBufferBytes: 32 << 10}, // the kernel takes little
		}
		var slow, pending atomic.Int64
		set := &weir.Set{Server: srv, MaxBehindBytes: behind, Slow: func(ctx *pipeline.Context) {
			slow.Add(1)
			pending.Store(max(pending.Load(), int64(ctx.Pending())))
		}}
		srv.Init = only(func() any { return set })
		clients := startMembers(t, srv, set, members)
		var reads [members]atomic.Int64
		sent := make(chan error, 1)
		go func() {
			message := make([]byte, size-4)
			for m := range messages {
				for i := range members - 1 { // only the member that does not read at all falls behind
					for reads[i].Load() < int64(m)-behind/(size+weir.BroadcastOverheadBytes)/2 {
						sleepABit()
					}
				}
				binary.BigEndian.PutUint32(message, uint32(m))
				if err := set.Broadcast(framed(message)); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		require.NoError(t, all(members-1, func(i int) error { // the last one does not read
			for m := range messages {
				p, err := readFrame(clients[i])
				if err == nil && (len(p) != size-4 || binary.BigEndian.Uint32(p) != uint32(m)) {
					err = errors.New("another message")
				}
				if err != nil {
					reads[i].Store(messages)
					return fmt.Errorf("client %d, message %d: %w", i, m, err)
				}
				reads[i].Add(1)
			}
			return nil
		}))
		require.NoError(t, receive(t, sent, "all broadcasts"))
		assert.NotZero(t, slow.Load())
		assert.LessOrEqual(t, pending.Load(), int64(channel.DefaultWriteHighBytes+2*size),
			"what is kept for the slow one alone")

		// It reads on where it was, without the messages that it has missed, each of the others whole and in order.
		eventually(t, func() bool { return set.Queued() == 0 }, "everything in the log")
		missed, last := int(set.Missed()), -1
		assert.EqualValues(t, slow.Load(), missed)
		for range messages - missed {
			p, err := readFrame(clients[members-1])
			require.NoError(t, err)
			require.Len(t, p, size-4)
			m := int(binary.BigEndian.Uint32(p))
			require.Greater(t, m, last)
			last = m
		}
		assert.Equal(t, messages-1, last, "the newest is kept")
		assert.EqualValues(t, missed, set.Missed())
		assert.LessOrEqual(t, set.Kept(), behind)
	})
}

func TestNothingIsKeptForWhoHasLeft(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		var told atomic.Int32
		srv := &weir.Server{Transport: kind, Loops: 1}
		set := &weir.Set{Server: srv}
		var n atomic.Int32
		srv.Init = func(p *pipeline.Pipeline) error {
			if n.Add(1) == 1 {
				if err := p.AddLast("unwritable", unwritable{&told}); err != nil {
					return err
				}
			}
			return p.AddLast("set", set)
		}
		addr := startTCP(t, srv)
		slow := connect(t, "tcp", addr)
		eventually(t, func() bool { return set.Len() == 1 }, "the first member")
		fast := connect(t, "tcp", addr)
		eventually(t, func() bool { return set.Len() == 2 }, "the second member")
		for range 5 {
			require.NoError(t, set.Broadcast(make([]byte, 100)))
		}
		_, err := io.ReadFull(fast, make([]byte, 500))
		require.NoError(t, err)
		assert.Equal(t, 5*(100+weir.BroadcastOverheadBytes), set.Kept())
		slow.Close()
		eventually(t, func() bool { return set.Kept() == 0 }, "nothing is kept")
		assert.Zero(t, set.Missed())
	})
}

// unwritable makes its channel unwritable until it reads something, and counts what it is told.
type unwritable struct{ told *atomic.Int32 }

func (unwritable) ChannelActive(ctx *pipeline.Context) error {
	ctx.SetWritable(false)
	ctx.FireActive()
	return nil
}

func (unwritable) ChannelRead(ctx *pipeline.Context, _ any) error {
	ctx.SetWritable(true)
	return nil
}

// ChannelWritabilityChanged keeps the event from those behind, as a handler may.
func (u unwritable) ChannelWritabilityChanged(*pipeline.Context) error {
	u.told.Add(1)
	return nil
}

func TestAMemberMayBeBehindByMaxBehindBytes(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const limit, each = 2000, weir.BroadcastOverheadBytes
		for _, tc := range []struct {
			sizes  []int
			missed int // of the oldest
		}{
			{[]int{1000 - each, 1000 - each - 1}, 0},
			{[]int{1000 - each, 1000 - each}, 0},
			{[]int{1000 - each, 1000 - each + 1}, 1},
			{[]int{1, 1000 - each, 1000 - each}, 1},
			{[]int{2000 - each, 1}, 1},
			{[]int{5000}, 0}, // the newest always stays
			{[]int{400, 5000}, 1},
			{[]int{5000, 1}, 1},
			{[]int{600 - each, 600 - each, 600 - each, 600 - each, 600 - each}, 2},
		} {
			var slow, told atomic.Int32
			srv := &weir.Server{Transport: kind, Loops: 1}
			set := &weir.Set{Server: srv, MaxBehindBytes: limit, Slow: func(*pipeline.Context) { slow.Add(1) }}
			srv.Init = func(p *pipeline.Pipeline) error {
				return errors.Join(p.AddLast("unwritable", unwritable{&told}), p.AddLast("set", set))
			}
			c := startMembers(t, srv, set, 1)[0]
			var want []byte
			for i, size := range tc.sizes {
				message := bytes.Repeat([]byte{'a' + byte(i)}, size)
				require.NoError(t, set.Broadcast(message))
				if i >= tc.missed {
					want = append(want, message...)
				}
			}
			eventually(t, func() bool { return set.Queued() == 0 }, "everything in the log")
			assert.Equal(t, len(want)+each*(len(tc.sizes)-tc.missed), set.Kept(), "%v", tc.sizes)
			assert.EqualValues(t, tc.missed, set.Missed(), "%v", tc.sizes)
			assert.EqualValues(t, tc.missed, slow.Load(), "%v", tc.sizes)
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
			got := make([]byte, len(want))
			_, err = io.ReadFull(c, got)
			require.NoError(t, err, "%v", tc.sizes)
			assert.Equal(t, want, got, "%v", tc.sizes)
			assert.EqualValues(t, 2, told.Load(), "events that the set's own handler passes on")
			assert.Zero(t, set.Kept())
		}
	})
}

// blinker makes its channel unwritable and writable again within one turn: nobody is told of either.
type blinker struct{ set *weir.Set }

func (b blinker) ChannelActive(ctx *pipeline.Context) error { return b.set.Add(ctx) }

func (b blinker) ChannelRead(ctx *pipeline.Context, _ any) error {
	ctx.SetWritable(false)
	ref := ctx.Ref()
	if err := b.set.Broadcast([]byte("hello")); err != nil { // runs as a node of this turn, and then this:
		return err
	}
	return ref.Execute(func(ctx *pipeline.Context) { ctx.SetWritable(true) })
}

func TestAMemberThatIsUnwritableForAnInstantLosesNothing(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 1}
		set := &weir.Set{Server: srv}
		srv.Init = only(func() any { return blinker{set} })
		c := startMembers(t, srv, set, 1)[0]
		require.NoError(t, ping(c, "hello"))
		require.NoError(t, ping(c, "hello"))
	})
}
