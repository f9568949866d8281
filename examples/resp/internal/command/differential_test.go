package command

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/examples/resp/internal/redistest"
	"github.com/weirnet/weir/examples/resp/internal/store"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/codec/resp"
)

var seed = flag.Uint64("seed", 20261130, "of the random requests")

// TestRepliesAreThoseOfRedis runs random requests, cut into pieces of any length, without sockets on our side.
func TestRepliesAreThoseOfRedis(t *testing.T) {
	requests := 100_000
	if testing.Short() {
		requests = 10_000
	}
	redis, err := redistest.Dial(redistest.Start(t))
	require.NoError(t, err)
	defer redis.Close()
	st, err := store.New(store.Config{Seed: *seed})
	require.NoError(t, err)
	set, err := New(st)
	require.NoError(t, err)
	parser, err := resp.NewCommandParser(resp.Config{})
	require.NoError(t, err)
	ours := &direct{parser: parser, session: set.NewSession(), random: rand.New(rand.NewPCG(*seed, 2))}
	ran := redistest.Differential(t, redis, ours, *seed, requests)
	for _, c := range set.list {
		if c.name != "quit" { // it would end the connection
			assert.Positive(t, ran[c.name], "%s never ran", c.name)
		}
	}
}

// direct is a parser and a session, as a connection has them.
type direct struct {
	parser  *resp.CommandParser
	session *Session
	random  *rand.Rand
	pending []byte // not yet decoded
}

// Exchange gives the parser the bytes in pieces.
func (d *direct) Exchange(wire []byte, requests int) (replies [][]byte, err error) {
	out := buffer.New(4096)
	for len(wire) > 0 {
		n := min(len(wire), 1+d.random.IntN([]int{2, 30, 5000}[d.random.IntN(3)]))
		d.pending = append(bytes.Clone(d.pending), wire[:n]...) // it moves, as a buffer that grows does
		wire = wire[n:]
		for {
			cmd, took, err := d.parser.Decode(d.pending)
			if err == codec.ErrShort {
				break
			}
			if err != nil {
				return nil, err
			}
			d.session.Execute(cmd.Args, out)
			replies = append(replies, bytes.Clone(out.Bytes()))
			out.Truncate(0)
			d.pending = d.pending[took:]
		}
	}
	if len(replies) != requests || len(d.pending) > 0 {
		return nil, fmt.Errorf("%d replies to %d requests, %d bytes left", len(replies), requests, len(d.pending))
	}
	return replies, nil
}
