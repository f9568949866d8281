package command

import (
	"bytes"
	"flag"
	"slices"
	"strconv"
	"strings"
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

// clockSlack is by how much times to live may differ: the two servers read the clock at different moments, and the machine
// may be slow. In the test's data all times are further apart than that.
const clockSlack = 60_000 // milliseconds

// exceptions are the commands whose replies need not be the same bytes, what is compared instead, and why. Errors and
// replies of another kind are compared byte for byte all the same.
var exceptions = map[string]struct {
	why  string
	same func(theirs, ours *resp.Value) bool
}{
	"smembers": {"a set has no order", sameElements(1)},
	"keys":     {"a database has no order", sameElements(1)},
	"hgetall":  {"a hash has no order", sameElements(2)},
	"config":   {"settings come in no order", sameElements(2)},
	"ttl":      {"the clocks are read at different moments", closeIntegers(clockSlack / 1000)},
	"pttl":     {"the clocks are read at different moments", closeIntegers(clockSlack)},
	"spop":     {"the members are random; how many, and that they were in the set, is compared", sameLength},
	"info":     {"it describes another server", sameKind},
	"command":  {"Redis has more commands", sameKind},
}

func sameKind(theirs, ours *resp.Value) bool {
	return theirs.Kind == ours.Kind && theirs.Kind != resp.Error
}

func sameLength(theirs, ours *resp.Value) bool {
	return sameKind(theirs, ours) && len(theirs.Elems) == len(ours.Elems)
}

func closeIntegers(slack int64) func(theirs, ours *resp.Value) bool {
	return func(theirs, ours *resp.Value) bool {
		diff := theirs.Int - ours.Int
		return sameKind(theirs, ours) && theirs.Kind == resp.Integer && theirs.Int > slack && -slack < diff && diff < slack
	}
}

// sameElements compares arrays as sets of groups of that many elements.
func sameElements(group int) func(theirs, ours *resp.Value) bool {
	groups := func(v *resp.Value) (list []string) {
		for i := 0; i+group <= len(v.Elems); i += group {
			text := ""
			for _, e := range v.Elems[i : i+group] {
				text += strconv.Quote(string(e.Bytes)) + " "
			}
			list = append(list, text)
		}
		slices.Sort(list)
		return list
	}
	return func(theirs, ours *resp.Value) bool {
		return sameLength(theirs, ours) && slices.Equal(groups(theirs), groups(ours))
	}
}

// differential is a run of the same requests against redis-server and a Session.
type differential struct {
	t       *testing.T
	g       *generator
	redis   *redistest.Conn
	parser  *resp.CommandParser
	session *Session
	db      *store.DB

	pending []byte // our input that is not yet decoded
	replies int
}

func newDifferential(t *testing.T, seed uint64) *differential {
	redis, err := redistest.Dial(redistest.Start(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = redis.Close() })
	st, err := store.New(store.Config{Seed: seed})
	require.NoError(t, err)
	set, err := New(st)
	require.NoError(t, err)
	parser, err := resp.NewCommandParser(resp.Config{})
	require.NoError(t, err)
	return &differential{t: t, g: newGenerator(seed), redis: redis, parser: parser, session: set.NewSession()}
}

// TestRepliesAreThoseOfRedis runs seeded random requests, pipelined in batches of any length and cut into pieces of any
// length, against both.
func TestRepliesAreThoseOfRedis(t *testing.T) {
	total := 100_000
	if testing.Short() {
		total = 10_000
	}
	d := newDifferential(t, *seed)
	count := map[string]int{}
	for sent := 0; sent < total; {
		batch := d.batch(min(total-sent, 1+d.g.IntN(100)))
		d.run(batch)
		if t.Failed() {
			t.Fatalf("after about %d requests; again with -seed %d", sent, *seed)
		}
		sent += len(batch)
		for _, args := range batch {
			count[strings.ToLower(args[0])]++
		}
	}
	assert.Equal(t, total, d.replies)
	for _, db := range []string{"0", "1", "15"} {
		d.compareAll(db)
	}
	for _, c := range d.session.set.list {
		if c.name != "quit" { // it would end the connection
			assert.Positive(t, count[c.name], "%s never ran", c.name)
		}
	}
}

// batch makes at most n requests; one that takes random members is the last.
func (d *differential) batch(n int) (batch [][]string) {
	for len(batch) < n {
		args := d.g.request()
		batch = append(batch, args)
		if strings.EqualFold(args[0], "spop") {
			break
		}
	}
	return batch
}

// run sends a batch to both sides and compares the replies.
func (d *differential) run(batch [][]string) {
	var wire []byte
	for _, args := range batch {
		wire = append(wire, d.g.wire(args)...)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := d.redis.Write(wire)
		sent <- err
	}()
	ours := d.feed(wire, len(batch))
	for i, args := range batch {
		theirs, theirWire, err := d.redis.Reply()
		require.NoError(d.t, err)
		d.compare(args, theirs, theirWire, ours[i])
		if strings.EqualFold(args[0], "spop") && !d.t.Failed() {
			d.follow(args, theirs, ours[i])
		}
	}
	require.NoError(d.t, <-sent)
}

// feed gives our side the bytes in pieces and answers the reply to each request.
func (d *differential) feed(wire []byte, requests int) (replies [][]byte) {
	out := buffer.New(4096)
	for len(wire) > 0 {
		n := min(len(wire), 1+d.g.IntN([]int{2, 30, 5000}[d.g.IntN(3)]))
		d.pending = append(d.pending, wire[:n]...)
		wire = wire[n:]
		for {
			cmd, took, err := d.parser.Decode(d.pending)
			if err == codec.ErrShort {
				break
			}
			require.NoError(d.t, err)
			quit := d.session.Execute(cmd.Args, out)
			require.False(d.t, quit)
			replies = append(replies, bytes.Clone(out.Bytes()))
			out.Truncate(0)
			d.pending = append([]byte(nil), d.pending[took:]...)
		}
	}
	require.Empty(d.t, d.pending)
	require.Len(d.t, replies, requests)
	return replies
}

func (d *differential) compare(args []string, theirs *resp.Value, theirWire, ourWire []byte) {
	d.replies++
	if bytes.Equal(theirWire, ourWire) {
		return
	}
	if e, ok := exceptions[strings.ToLower(args[0])]; ok && e.same(theirs, parse(d.t, ourWire)) {
		return
	}
	assert.Equal(d.t, string(theirWire), string(ourWire), "redis (expected) and we differ on %q", args)
}

// follow makes our set what theirs is after each side has taken members of its own choice.
func (d *differential) follow(args []string, theirs *resp.Value, ourWire []byte) {
	ours := parse(d.t, ourWire)
	taken := func(v *resp.Value) (list []string) {
		switch v.Kind {
		case resp.Bulk:
			list = append(list, string(v.Bytes))
		case resp.Array:
			for _, e := range v.Elems {
				list = append(list, string(e.Bytes))
			}
		}
		return list
	}
	mine, his := taken(ours), taken(theirs)
	if len(mine) == 0 || slices.Equal(mine, his) {
		return
	}
	slices.Sort(his)
	assert.Len(d.t, slices.Compact(slices.Clone(his)), len(mine), "a member was taken twice")
	key := []byte(args[1])
	sh := d.session.db.Lock(key)
	e := sh.Find(key)
	left := e != nil
	if left {
		for _, m := range mine {
			assert.True(d.t, e.Set.Add([]byte(m)), "%q was taken and still there, or taken twice", m)
		}
		for _, m := range his {
			assert.True(d.t, e.Set.Remove([]byte(m)), "redis took %q, which our set did not have", m)
		}
	}
	sh.Unlock()
	if !left {
		slices.Sort(mine)
		assert.Equal(d.t, his, mine, "all members of a set were taken")
	}
}

// compareAll compares everything in a database.
func (d *differential) compareAll(db string) {
	d.run([][]string{{"SELECT", db}, {"DBSIZE"}, {"KEYS", "*"}})
	for _, key := range keyNames {
		d.run([][]string{
			{"TYPE", key}, {"PTTL", key}, {"GET", key}, {"LRANGE", key, "0", "-1"}, {"SMEMBERS", key}, {"HGETALL", key},
		})
	}
}

func parse(t *testing.T, wire []byte) *resp.Value {
	p, err := resp.NewValueParser(resp.Config{})
	require.NoError(t, err)
	v, n, err := p.Decode(wire)
	require.NoError(t, err, "%q", wire)
	require.Equal(t, len(wire), n, "%q is more than one reply", wire)
	return v
}
