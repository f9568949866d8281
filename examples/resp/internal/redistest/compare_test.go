package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/codec/resp"
)

// A comparison that lets everything pass would be worth nothing.
func TestCompareNoticesWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		command, theirs, ours string
		same                  bool
	}{
		{"GET", "$1\r\na\r\n", "$1\r\na\r\n", true},
		{"GET", "$1\r\na\r\n", "$1\r\nb\r\n", false},
		{"GET", "$-1\r\n", "*-1\r\n", false},
		{"INCR", "-ERR a\r\n", "-ERR b\r\n", false},
		{"SMEMBERS", "*2\r\n$1\r\na\r\n$1\r\nb\r\n", "*2\r\n$1\r\nb\r\n$1\r\na\r\n", true},
		{"SMEMBERS", "*2\r\n$1\r\na\r\n$1\r\nb\r\n", "*2\r\n$1\r\na\r\n$1\r\na\r\n", false},
		{"SMEMBERS", "*1\r\n$1\r\na\r\n", "*2\r\n$1\r\na\r\n$1\r\na\r\n", false},
		{"smembers", "-WRONGTYPE a\r\n", "-WRONGTYPE b\r\n", false},
		{"HGETALL", "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n", "*4\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\na\r\n$1\r\n1\r\n", true},
		{"HGETALL", "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n", "*4\r\n$1\r\nb\r\n$1\r\n1\r\n$1\r\na\r\n$1\r\n2\r\n", false},
		{"TTL", ":1000\r\n", ":1001\r\n", true},
		{"TTL", ":1000\r\n", ":1061\r\n", false},
		{"TTL", ":-1\r\n", ":-2\r\n", false},
		{"TTL", ":1\r\n", ":2\r\n", false},
		{"PTTL", ":1000000\r\n", ":1001000\r\n", true},
		{"PTTL", ":1000000\r\n", ":1060000\r\n", false},
		{"SPOP", "$1\r\na\r\n", "$1\r\nb\r\n", true},
		{"SPOP", "$1\r\na\r\n", "*1\r\n$1\r\nb\r\n", false},
		{"SPOP", "*1\r\n$1\r\na\r\n", "*2\r\n$1\r\nb\r\n$1\r\na\r\n", false},
		{"INFO", "$1\r\na\r\n", "$2\r\nbb\r\n", true},
		{"INFO", "-ERR a\r\n", "-ERR b\r\n", false},
	} {
		err := compare([]string{c.command}, nil, []byte(c.theirs), []byte(c.ours))
		assert.Equal(t, c.same, err == nil, "%s %q %q: %v", c.command, c.theirs, c.ours, err)
	}
}

func TestGeneratedRequestsReadAsTheyWereMade(t *testing.T) {
	g := newGenerator(1)
	p, err := resp.NewCommandParser(resp.Config{})
	require.NoError(t, err)
	commands := map[string]bool{}
	for range 5000 {
		args := g.request()
		cmd, n, err := p.Decode(g.wire(args))
		require.NoError(t, err, "%q", args)
		require.Positive(t, n)
		got := make([]string, len(cmd.Args))
		for i, a := range cmd.Args {
			got[i] = string(a)
		}
		require.Equal(t, args, got)
		commands[strings.ToLower(args[0])] = true
	}
	assert.Greater(t, len(commands), 40)
}

// fake replies to every request from a table, and SPOP as it is told.
type fake struct {
	spop     string
	log      []string
	returned string
}

func (f *fake) Exchange(wire []byte, requests int) (replies [][]byte, err error) {
	p, err := resp.NewCommandParser(resp.Config{})
	if err != nil {
		return nil, err
	}
	for len(wire) > 0 {
		cmd, n, err := p.Decode(wire)
		if errors.Is(err, codec.ErrShort) {
			break
		}
		if err != nil {
			return nil, err
		}
		wire = wire[n:]
		f.log = append(f.log, fmt.Sprintf("%q", cmd.Args))
		switch string(cmd.Args[0]) {
		case "SPOP":
			replies = append(replies, []byte(f.spop))
		default:
			replies = append(replies, []byte(f.returned))
		}
	}
	return replies, nil
}

// After each side has taken another member, ours gets back what it took and loses what redis took; when redis took one
// that ours did not have, that is an error.
func TestSetsAreBroughtTogetherAfterSPop(t *testing.T) {
	for returned, same := range map[string]bool{":1\r\n": true, ":0\r\n": false} {
		redis, ours := &fake{spop: "$1\r\na\r\n"}, &fake{spop: "$1\r\nb\r\n", returned: returned}
		d := &differential{g: newGenerator(1), redis: redis, ours: ours, ran: map[string]int{}}
		err := d.run([][]string{{"SPOP", "k"}})
		assert.Equal(t, same, err == nil, "%v", err)
		if same {
			want := []string{`["SPOP" "k"]`, `["SADD" "k" "b"]`, `["SREM" "k" "a"]`}
			assert.True(t, slices.Equal(ours.log, want), ours.log)
		}
	}
}
