//go:build linux

package weir_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/pipeline"
)

func TestTheMembersOfASetCanBeLookedUp(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 2}
		set := &weir.Set{Server: srv}
		ids := make(chan uint64, 20)
		srv.Init = only(func() any { return speaker{set: set, ids: ids} })
		addr := startTCP(t, srv)
		clients := map[uint64]net.Conn{}
		for range 20 {
			c := connect(t, "tcp", addr)
			clients[receive(t, ids, "an ID")] = c
		}
		eventually(t, func() bool { return set.Len() == 20 }, "20 members")
		seen := map[uint64]bool{}
		for id, ref := range set.All() {
			require.False(t, seen[id])
			seen[id] = true
			require.Equal(t, id, ref.ID())
			require.NoError(t, ref.TryWrite(binary.BigEndian.AppendUint64(nil, id)))
		}
		require.Len(t, seen, 20)
		for id, c := range clients {
			got := make([]byte, 8)
			_, err := io.ReadFull(c, got)
			require.NoError(t, err)
			require.Equal(t, id, binary.BigEndian.Uint64(got))
			ref, ok := set.Get(id)
			require.True(t, ok)
			require.NoError(t, ref.TryWrite([]byte("you")))
			_, err = io.ReadFull(c, got[:3])
			require.NoError(t, err)
			require.Equal(t, "you", string(got[:3]))
		}
		for range set.All() {
			break // it ends when it is told to
		}
		for id, c := range clients {
			c.Close()
			eventually(t, func() bool { _, ok := set.Get(id); return !ok }, "who is gone is not found")
		}
		assert.Zero(t, set.Len())
		for range set.All() {
			assert.Fail(t, "a member of an empty set")
		}
	})
}

// A channel may stand in a set with several Contexts; each is a member.
func TestOneChannelAsSeveralMembers(t *testing.T) {
	srv := &weir.Server{Loops: 1}
	set := &weir.Set{Server: srv}
	results := make(chan []bool, 10)
	ids := make(chan uint64, 1)
	names := []string{"a", "b", "c"}
	srv.Init = func(p *pipeline.Pipeline) error {
		for _, name := range names {
			if err := p.AddLast(name, passing{}); err != nil {
				return err
			}
		}
		return p.AddLast("tester", readFunc(func(ctx *pipeline.Context, _ any) error {
			var got []bool
			var all []*pipeline.Context
			for _, name := range names {
				c := ctx.Pipeline().Context(name)
				all = append(all, c)
				if err := set.Add(c); err != nil {
					return err
				}
			}
			ids <- ctx.ID()
			for _, i := range []int{1, 0, 1, 2} { // one in the middle, the first, one that has gone, the last
				got = append(got, set.Remove(all[i]))
				_, found := set.Get(ctx.ID())
				got = append(got, found)
			}
			results <- got
			return nil
		}))
	}
	c := connect(t, "tcp", startTCP(t, srv))
	_, err := io.WriteString(c, "x")
	require.NoError(t, err)
	receive(t, ids, "the channel")
	assert.Equal(t, []bool{true, true, true, true, false, true, true, false},
		receive(t, results, "Remove's and Get's results"))
}

// passing is a handler that does nothing.
type passing struct{}

func (passing) ChannelInactive(ctx *pipeline.Context) error {
	ctx.FireInactive()
	return nil
}
