package command

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/buffer"
)

// other is a further client of the same store.
func (c *client) other() *client {
	second := *c
	second.session = c.set.NewSession()
	return &second
}

func TestWhatOthersChangeEndsATransaction(t *testing.T) {
	for change, dirty := range map[string]bool{
		"SET k v": true, "DEL k": true, "APPEND k x": true, "EXPIRE k 100": true, "INCR k": true, "GETSET k 1": true,
		"MSET other 1 k 1": true, "FLUSHALL": true, "DEL none": false, "SET other v": false,
		"GET k": false, "TTL k": false,
		"RPUSH l x": true, "LPOP l": true, "SADD s new": true, "SADD s old": false, "SREM s old": true,
		"SREM s none": false,
		"SPOP s":      true, "SPOP s 0": false, "HSET h f v": true, "HDEL h f": true, "HDEL h none": false,
		"SET none 1 NX": true,
	} {
		c := newClient(t)
		for _, request := range []string{
			"SET k 1", "RPUSH l a b", "SADD s old", "HSET h f v", "WATCH k l s h none", "MULTI", "PING",
		} {
			c.do(request)
		}
		second := c.other()
		second.do(change)
		assert.Equal(t, dirty && change != "DEL none", c.do("EXEC") == "*-1\r\n", change)
		second.session.Close()
		c.session.Close()
	}
}

func TestAWatchedKeyThatExpiresEndsATransaction(t *testing.T) {
	c := newClient(t)
	c.do("SET k v PX 10")
	c.do("WATCH k")
	c.do("MULTI")
	c.millis += 11
	assert.Equal(t, "*-1\r\n", c.do("EXEC"))
	assert.Equal(t, ":1\r\n", c.do("DBSIZE"), "nobody has looked at it")
	c.do("WATCH k") // it has expired already
	c.store.Expire(10)
	c.do("MULTI")
	assert.Equal(t, "*0\r\n", c.do("EXEC"))
	c.do("WATCH k")
	c.other().do("SET k again")
	c.do("UNWATCH")
	c.do("MULTI")
	assert.Equal(t, "*0\r\n", c.do("EXEC"))
}

// Transactions of several clients, and commands on several keys, are steps: nobody sees a half of one.
func TestATransactionIsOneStepForOthers(t *testing.T) {
	c := newClient(t)
	c.do("MSET a 0 b 0")
	var clients sync.WaitGroup
	for range 4 {
		second := c.other()
		clients.Go(func() {
			for range 5000 {
				for _, request := range []string{"MULTI", "INCR a", "MGET a b", "INCR b", "EXEC"} {
					second.do(request)
				}
			}
		})
	}
	var done atomic.Bool
	go func() { clients.Wait(); done.Store(true) }()
	second := c.other()
	for !done.Load() { // as long as they go on
		got := strings.Fields(second.do("MGET a b"))
		assert.Equal(t, got[2], got[4])
	}
	assert.Equal(t, "*2\r\n$5\r\n20000\r\n$5\r\n20000\r\n", second.do("MGET a b"))
}

func TestWhatAClientMakesTheServerKeepIsBounded(t *testing.T) {
	const ping = requestBytes + argumentBytes + len("PING")
	c := newClient(t)
	for _, room := range []int{-1, 0, 1} {
		c.set.limits.queuedBytes = 3*ping + room
		c.do("MULTI")
		for range 2 {
			assert.Equal(t, "+QUEUED\r\n", c.do("PING"))
		}
		got := c.do("PING")
		if room < 0 {
			assert.Equal(t, "-ERR transaction is too large\r\n", got)
			assert.Nil(t, c.session.tx.queued)
			assert.Contains(t, c.do("EXEC"), "-EXECABORT")
			continue
		}
		assert.Equal(t, "+QUEUED\r\n", got)
		assert.Equal(t, "*3\r\n+PONG\r\n+PONG\r\n+PONG\r\n", c.do("EXEC"))
	}

	c.set.limits.watchedKeys = 3
	assert.Equal(t, "+OK\r\n", c.do("WATCH a b"))
	assert.Equal(t, "-ERR too many watched keys\r\n", c.do("WATCH c d"))
	assert.Equal(t, "+OK\r\n", c.do("WATCH c"))
	assert.Equal(t, "-ERR too many watched keys\r\n", c.do("WATCH d"))
	c.do("UNWATCH")

	c.do("SET k 0123456789") // a reply of 17 bytes
	for request, bytes := range map[string]int{"MGET k k k": 4 + 3*17, "MGET k": 4 + 17} {
		for _, room := range []int{-1, 0} {
			c.set.limits.replyBytes = bytes + room
			out := buffer.New(64)
			out.AppendString("before")
			words := strings.Fields(request)
			args := make([][]byte, len(words))
			for i, w := range words {
				args[i] = []byte(w)
			}
			second := c.set.NewSession()
			assert.Equal(t, room < 0, second.Execute(args, out), request)
			assert.Equal(t, room < 0, out.Len() == len("before"), request)
		}
	}
	c.set.limits = limits{queuedBytes: 1000, replyBytes: 50}
	for _, request := range []string{"MULTI", "GET k", "GET k", "GET k", "GET k", "SET done 1"} {
		c.do(request)
	}
	assert.Empty(t, c.do("EXEC"))
	assert.True(t, c.session.quit)
	assert.Equal(t, "$1\r\n1\r\n", c.other().do("GET done"), "it was run all the same")
}

func TestRequestsOfBrowsersAreNotAnswered(t *testing.T) {
	for _, request := range []string{"POST / HTTP/1.1", "host: 127.0.0.1:6380", "Post", "HOST: x"} {
		c := newClient(t)
		c.do("MULTI")
		assert.Empty(t, c.do(request))
		assert.True(t, c.session.quit, request)
	}
}
