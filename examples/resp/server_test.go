//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/examples/resp/internal/redistest"
	"github.com/weirnet/weir/internal/servertest"
)

// patience bounds every wait. Nothing is expected to take long; a shared machine may.
const patience = 60 * time.Second

// onEachTransport runs test against a server on each transport.
func onEachTransport(t *testing.T, test func(t *testing.T, port string)) {
	servertest.Each(t, func(t *testing.T, kind weir.Kind) {
		srv, _, err := newServer(kind, 2)
		require.NoError(t, err)
		addr := servertest.Start(t, srv, "tcp", "127.0.0.1:0")
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			assert.NoError(t, srv.Shutdown(ctx))
		})
		test(t, fmt.Sprint(addr.(*net.TCPAddr).Port))
	})
}

func dial(t *testing.T, port string) net.Conn {
	return servertest.DialTCP(t, "127.0.0.1:"+port)
}

func TestRepliesOverSocketsAreThoseOfRedis(t *testing.T) {
	onEachTransport(t, func(t *testing.T, port string) {
		redis, err := redistest.Dial(redistest.Start(t))
		require.NoError(t, err)
		defer redis.Close()
		ours := redistest.NewConn(dial(t, port))
		random := rand.New(rand.NewPCG(1, 3))
		ours.Split = func() int { return 1 + random.IntN(5000) }
		redistest.Differential(t, redis, ours, 7, 10_000)
	})
}

// protocolCases are streams that are wrong, or look so, and what we do otherwise than Redis and why.
var protocolCases = []struct{ in, ours, why string }{
	{in: "*0\r\n"},
	{in: "*-1\r\n"},
	{in: "*-5\r\n"},
	{in: "\r\n\n \t\r\n"},
	{in: "PING\n"},
	{in: " \t PING\r\n"},
	{in: "PING \"a b\"\r\n"},
	{in: `PING "a\x41\n\q"` + "\r\n"},
	{in: `PING 'a\'b\x41'` + "\r\n"},
	{in: "PING \"abc\r\n"},
	{in: "PING \"abc\"d\r\n"},
	{in: "PING 'abc'd\r\n"},
	{in: "PING a\"b c\"\r\n"},
	{in: "PING \"\"\r\n"},
	{in: "PING \va\vb\r\n"},
	{in: `PING "\x4" \x41` + "\r\n"},
	{in: `PING "\"` + "\r\n"},
	{in: `PING a\"b` + "\r\n"},
	{in: "P\xc3\xa9 a\r\n"},
	{in: "*a\r\n"},
	{in: "*\r\n"},
	{in: "*01\r\n"},
	{in: "*+1\r\n"},
	{in: "*-0\r\n"},
	{in: "* 1\r\n"},
	{in: "*2147483648\r\n"},
	{in: "*99999999999999999999999\r\n"},
	{in: "*1\r\n#4\r\n"},
	{in: "*1\r\n\r\n"},
	{in: "*1\r\n\n\r\n"},
	{in: "*1\r\n\xff\r\n"},
	{in: "*1\r\n$-1\r\n"},
	{in: "*1\r\n$\r\n"},
	{in: "*1\r\n$04\r\n"},
	{in: "*1\r\n$536870913\r\n"},
	{in: "*1\r\n$4\nPING\r\n"},
	{in: "*1\r\n$0\r\n\r\n"},
	{in: "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n"},
	{in: "*3\r\n$3\r\nSET\r\n$1\r\na\r\n:1\r\n"},
	{in: "QUIT\r\n"},
	{in: "POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n\r\nSET k v\r\n"},
	{in: "hOsT: 127.0.0.1\r\n"},
	{in: "MULTI\r\npost\r\n", ours: "+OK\r\n", why: "Redis does not send what it has not sent"},
	{in: strings.Repeat("a", 65537)},
	{in: "*" + strings.Repeat("1", 65536)},
	{in: "*1\r\n$" + strings.Repeat("1", 65536)},
	{in: "*1\r\n" + strings.Repeat("X", 65537)},
	{
		in: "*1048577\r\n", ours: "-ERR Protocol error: invalid multibulk length\r\n",
		why: "Redis 7 allows 2^31-1 arguments, earlier ones 1024*1024; memory for each is worth a bound",
	},
	{
		in: "*1\r\n$4\r\nPINGxy", ours: "-ERR Protocol error: expected CRLF after bulk string\r\n",
		why: "Redis takes any two bytes for CR LF; a wrong length then hides requests in others",
	},
	{
		in: "*1\rX$4\r\nPING\r\n", ours: "-ERR Protocol error: invalid multibulk length\r\n",
		why: "Redis takes any byte for the LF behind a CR",
	},
	{
		in: "PI\x00NG\r\n", ours: "-ERR unknown command 'PI', with args beginning with: \r\n" + sentinelReply,
		why: "Redis does not see a line end behind a NUL byte and waits for ever",
	},
	{
		in: "*1\r\n\x00\r\n", ours: "-ERR Protocol error: expected '$', got '\x00'\r\n",
		why: "Redis does not see a line end behind a NUL byte and waits for ever",
	},
}

const (
	sentinel      = "*2\r\n$4\r\nECHO\r\n$8\r\nsentinel\r\n"
	sentinelReply = "$8\r\nsentinel\r\n"
)

// converse sends in, and a request behind it when in is short enough that the server takes both at once, and returns
// what comes back until the reply to that request or the end.
func converse(t *testing.T, c net.Conn, in string) string {
	t.Helper()
	if len(in) < 1000 {
		in += sentinel
	}
	_, err := io.WriteString(c, in)
	require.NoError(t, err)
	var got []byte
	for !bytes.HasSuffix(got, []byte(sentinelReply)) {
		var piece [4096]byte
		n, err := c.Read(piece[:])
		got = append(got, piece[:n]...)
		if err != nil {
			require.True(t, err == io.EOF || errors.Is(err, syscall.ECONNRESET), "%v on %.60q", err, in)
			break
		}
	}
	return string(got)
}

func TestMalformedStreamsAreAnsweredAsByRedis(t *testing.T) {
	socket := redistest.Start(t)
	onEachTransport(t, func(t *testing.T, port string) {
		for _, c := range protocolCases {
			want := c.ours
			if c.why == "" {
				redis, err := redistest.Dial(socket)
				require.NoError(t, err)
				require.NoError(t, redis.SetDeadline(time.Now().Add(patience)))
				want = converse(t, redis.Conn, c.in)
				_ = redis.Close()
			}
			assert.Equal(t, want, converse(t, dial(t, port), c.in), "%.60q", c.in)
		}
	})
}

// run starts one of Redis' programs against our server and returns what it prints.
func run(t *testing.T, input, program string, args ...string) string {
	t.Helper()
	path := redistest.Binary(t, program)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(input)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", program, output)
	return string(output)
}

func TestRedisCLISpeaksToUs(t *testing.T) {
	onEachTransport(t, func(t *testing.T, port string) {
		got := run(t, `SET greeting "hello world" EX 100
GET greeting
INCR visits
RPUSH list one two three
LRANGE list 0 -1
HSET hash field value
HGETALL hash
SADD set member
SMEMBERS set
TYPE set
GET set
GET missing
NOSUCH thing
MGET greeting missing visits
DBSIZE
`, "redis-cli", "-p", port)
		assert.Equal(t, `OK
hello world
1
3
one
two
three
1
field
value
1
member
set
WRONGTYPE Operation against a key holding the wrong kind of value

ERR unknown command 'NOSUCH', with args beginning with: 'thing' `+`

hello world

1
5
`, strings.ReplaceAll(got, "\n\n\n", "\n\n"))
	})
}

func TestRedisBenchmarkRuns(t *testing.T) {
	onEachTransport(t, func(t *testing.T, port string) {
		tests := []string{
			"PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "LPUSH", "RPUSH", "LPOP", "RPOP", "SADD", "HSET", "SPOP",
			"LRANGE_100", "MSET",
		}
		got := run(t, "", "redis-benchmark", "-p", port, "-n", "1000", "-c", "10", "-P", "8", "-r", "100", "-d", "100",
			"--csv",
			"-t", strings.ToLower(strings.Join(tests, ",")))
		assert.NotContains(t, strings.ToLower(got), "error")
		for _, name := range tests {
			assert.Contains(t, got, `"`+strings.SplitN(name, "_100", 2)[0], got)
		}
	})
}

// A client that sends requests and does not read: the server stops reading from it, and goes on where it stopped.
func TestAClientThatReadsLateGetsEveryReply(t *testing.T) {
	const requests = 50_000
	onEachTransport(t, func(t *testing.T, port string) {
		c := dial(t, port)
		value := strings.Repeat("v", 500)
		_, err := io.WriteString(c, request("SET", "k", value))
		require.NoError(t, err)
		sent := make(chan error, 1)
		go func() {
			batch := []byte(strings.Repeat(request("GET", "k"), requests/100))
			for range 100 {
				if _, err := c.Write(batch); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		reply := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
		want := []byte("+OK\r\n" + strings.Repeat(reply, requests))
		// Another client, meanwhile, is served: the loop does not wait for the one that does not read.
		assert.Equal(t, sentinelReply, converse(t, dial(t, port), ""))
		got := make([]byte, len(want))
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got), "replies are in order and whole")
		require.NoError(t, <-sent)
	})
}

// A reply may be larger than all limits on what is pending: it is written once, and nothing more until it has left.
func TestAValueLargerThanThePendingLimitTravelsWhole(t *testing.T) {
	onEachTransport(t, func(t *testing.T, port string) {
		c := redistest.NewConn(dial(t, port))
		value := strings.Repeat("0123456789abcdef", 20<<20/16)
		v, err := c.Do("SET", "k", value)
		require.NoError(t, err)
		assert.Equal(t, "OK", string(v.Bytes))
		replies, err := c.Exchange([]byte(request("GET", "k")+request("GET", "k")+request("PING")), 3)
		require.NoError(t, err)
		want := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
		assert.True(t, string(replies[0]) == want && string(replies[1]) == want)
		assert.Equal(t, "+PONG\r\n", string(replies[2]))
	})
}
