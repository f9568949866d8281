package redistest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Server is one side of a comparison: it replies to each of the given number of requests in wire with the bytes of one
// reply.
type Server interface {
	Exchange(wire []byte, requests int) (replies [][]byte, err error)
}

// Differential gives seeded random requests, pipelined in batches of any length, to a redis-server and to ours, and
// fails t at the first reply that differs beyond the exceptions. Both must be empty. It returns how often each command
// ran.
func Differential(t testing.TB, redis, ours Server, seed uint64, requests int) map[string]int {
	t.Helper()
	d := &differential{g: newGenerator(seed), redis: redis, ours: ours, ran: map[string]int{}}
	for d.requests < requests {
		if err := d.run(d.batch(min(requests-d.requests, 1+d.g.IntN(100)))); err != nil {
			t.Fatalf("seed %d, after %d requests: %v", seed, d.requests, err)
		}
	}
	if err := d.run([][]string{{"RESET"}}); err != nil {
		t.Fatalf("seed %d in the end: %v", seed, err)
	}
	for _, db := range databases {
		if err := d.compareAll(db); err != nil {
			t.Fatalf("seed %d, database %s in the end: %v", seed, db, err)
		}
	}
	return d.ran
}

type differential struct {
	g           *generator
	redis, ours Server
	requests    int
	ran         map[string]int
	multi       bool       // a transaction is open
	queued      [][]string // in it
}

// batch makes at most n requests; one that takes random members is the last.
func (d *differential) batch(n int) (batch [][]string) {
	for len(batch) < n {
		args := d.g.request()
		switch {
		case strings.EqualFold(args[0], "multi"):
			d.multi = true
		case !strings.EqualFold(args[0], "spop"):
		case d.multi:
			continue // its members could not be followed
		default:
			return append(batch, args)
		}
		batch = append(batch, args)
	}
	return batch
}

// track keeps what is queued, by what both have replied.
func (d *differential) track(args []string, reply []byte) {
	switch name := strings.ToLower(args[0]); {
	case string(reply) == "+QUEUED\r\n":
		d.queued = append(d.queued, args)
	case name == "multi" && reply[0] == '+':
		d.multi, d.queued = true, nil
	case name == "exec", (name == "discard" || name == "reset") && len(args) == 1:
		d.multi, d.queued = false, nil
	}
}

// run gives a batch to both sides and compares the replies.
func (d *differential) run(batch [][]string) error {
	var wire []byte
	for _, args := range batch {
		wire = append(wire, d.g.wire(args)...)
	}
	ours, err := d.ours.Exchange(wire, len(batch))
	if err != nil {
		return fmt.Errorf("we, on %.300q: %w", wire, err)
	}
	theirs, err := d.redis.Exchange(wire, len(batch))
	if err != nil {
		return fmt.Errorf("redis, on %.300q: %w", wire, err)
	}
	for i, args := range batch {
		if err := compare(args, d.queued, theirs[i], ours[i]); err != nil {
			return err
		}
		d.track(args, theirs[i])
		d.ran[strings.ToLower(args[0])]++
		d.requests++
		if strings.EqualFold(args[0], "spop") {
			if err := d.follow(args, theirs[i], ours[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow makes our set what theirs is, after each side has taken as many members of its own choice.
func (d *differential) follow(args []string, theirWire, ourWire []byte) error {
	theirs, err := parse(theirWire)
	if err != nil {
		return err
	}
	ours, err := parse(ourWire)
	if err != nil {
		return err
	}
	his, mine := taken(&theirs), taken(&ours)
	if slices.Equal(mine, his) {
		return nil
	}
	// What we have taken goes back, and each must be new; what redis has taken goes, and each must have been there. If
	// the last was taken, both took the same.
	for _, step := range []struct {
		command string
		members []string
	}{{"SADD", mine}, {"SREM", his}} {
		want := fmt.Sprintf(":%d\r\n", len(step.members))
		request := append([]string{step.command, args[1]}, step.members...)
		replies, err := d.ours.Exchange(arrayWire(request), 1)
		if err != nil {
			return err
		}
		if !bytes.Equal(replies[0], []byte(want)) {
			return fmt.Errorf("after %.200q redis took %q and we %q, but then %q got %q",
				args, his, mine, request, replies[0])
		}
	}
	return nil
}

// compareAll compares everything in a database.
func (d *differential) compareAll(db string) error {
	if err := d.run([][]string{{"SELECT", db}, {"DBSIZE"}, {"KEYS", "*"}}); err != nil {
		return err
	}
	for _, key := range keyNames {
		err := d.run([][]string{
			{"TYPE", key}, {"PTTL", key}, {"GET", key}, {"LRANGE", key, "0", "-1"}, {"SMEMBERS", key}, {"HGETALL", key},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
