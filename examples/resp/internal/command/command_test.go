package command

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/examples/resp/internal/store"
)

// client runs requests against a store whose clock the test moves.
type client struct {
	t       testing.TB
	millis  int64
	store   *store.Store
	set     *Set
	session *Session
}

func newClient(t testing.TB) *client {
	c := &client{t: t, millis: 1_700_000_000_000}
	var err error
	c.store, err = store.New(store.Config{Now: func() time.Time { return time.UnixMilli(c.millis) }, Seed: 1})
	require.NoError(t, err)
	c.set, err = New(c.store)
	require.NoError(t, err)
	c.session = c.set.NewSession()
	return c
}

// do runs a request given as words.
func (c *client) do(request string) string {
	var args [][]byte
	for _, word := range strings.Fields(request) {
		args = append(args, []byte(word))
	}
	out := buffer.New(64)
	c.session.Execute(args, out)
	return string(out.Bytes())
}

// TestCommandsAnswerAsDocumented is for machines without redis-server, and for what depends on time.
func TestCommandsAnswerAsDocumented(t *testing.T) {
	cl := newClient(t)
	for _, c := range []struct{ request, want string }{
		{"PING", "+PONG"},
		{"ping x", "$1 x"},
		{"PING x y", "-ERR wrong number of arguments for 'ping' command"},
		{"ECHO x", "$1 x"},
		{"GET s", "$-1"},
		{"SET s 10", "+OK"},
		{"GET s", "$2 10"},
		{"GETSET s 11", "$2 10"},
		{"INCR s", ":12"},
		{"DECRBY s 20", ":-8"},
		{"INCRBY s 9223372036854775807", ":9223372036854775799"},
		{"INCRBY s 100", "-ERR increment or decrement would overflow"},
		{"DECRBY s -9223372036854775808", "-ERR decrement would overflow"},
		{"INCRBY s x", "-ERR value is not an integer or out of range"},
		{"SET s v NX", "$-1"},
		{"SET s v XX GET", "$19 9223372036854775799"},
		{"SET n v XX", "$-1"},
		{"SET n v NX GET", "$-1"},
		{"GET n", "$1 v"},
		{"SET n v NX XX", "-ERR syntax error"},
		{"SET n v EX", "-ERR syntax error"},
		{"SET n v EX 0", "-ERR invalid expire time in 'set' command"},
		{"SET n v EX 9 PX 9", "-ERR syntax error"},
		{"SET n v EX 9 KEEPTTL", "-ERR syntax error"},
		{"APPEND s w", ":2"},
		{"STRLEN s", ":2"},
		{"STRLEN none", ":0"},
		{"MSET a 1 b 2", "+OK"},
		{"MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"},
		{"MGET a none b", "*3 $1 1 $-1 $1 2"},
		{"EXISTS a a none", ":2"},
		{"DEL a a b", ":2"},
		{"RPUSH l 1 2 3", ":3"},
		{"LPUSH l 0", ":4"},
		{"LRANGE l 0 -1", "*4 $1 0 $1 1 $1 2 $1 3"},
		{"LRANGE l -2 9", "*2 $1 2 $1 3"},
		{"LRANGE l 3 1", "*0"},
		{"LLEN l", ":4"},
		{"LPOP l", "$1 0"},
		{"RPOP l 2", "*2 $1 3 $1 2"},
		{"LPOP l 0", "*0"},
		{"LPOP l 9", "*1 $1 1"},
		{"LPOP l", "$-1"},
		{"LPOP l 1", "*-1"},
		{"LPOP l -1", "-ERR value is out of range, must be positive"},
		{"TYPE l", "+none"},
		{"SADD t a b a", ":2"},
		{"SCARD t", ":2"},
		{"SREM t a z", ":1"},
		{"SMEMBERS t", "*1 $1 b"},
		{"SPOP t", "$1 b"},
		{"SPOP t", "$-1"},
		{"SPOP t 1", "*0"},
		{"SADD t x", ":1"},
		{"GET t", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"TYPE t", "+set"},
		{"HSET h f 1 g 2", ":2"},
		{"HSET h f 3", ":0"},
		{"HSET h f", "-ERR wrong number of arguments for 'hset' command"},
		{"HGET h f", "$1 3"},
		{"HGETALL h", "*4 $1 f $1 3 $1 g $1 2"},
		{"HDEL h f g f", ":2"},
		{"HGETALL h", "*0"},
		{"TYPE h", "+none"},
		{"KEYS [^mnoprst]", "*0"},
		{"KEYS [rs]", "*1 $1 s"},
		{"DBSIZE", ":3"},
		{"SELECT 1", "+OK"},
		{"DBSIZE", ":0"},
		{"SELECT 16", "-ERR DB index is out of range"},
		{"SELECT 0", "+OK"},
		{"CONFIG GET save", "*2 $4 save $0 "},
		{"CONFIG SET x y", "-ERR unknown subcommand 'SET'. Try CONFIG HELP."},
		{"COMMAND COUNT", ":52"},
		{"nonsense a b", "-ERR unknown command 'nonsense', with args beginning with: 'a' 'b' "},
		{"FLUSHALL now", "-ERR syntax error"},
		{"FLUSHALL", "+OK"},
		{"DBSIZE", ":0"},
		{"AUTH secret", "-ERR AUTH <password> called without any password configured for the default user. " +
			"Are you sure your configuration is correct?"},
		{"AUTH default any", "+OK"},
		{"AUTH x y", "-WRONGPASS invalid username-password pair or user is disabled."},
		{"CLIENT GETNAME", "$-1"},
		{"CLIENT SETNAME me", "+OK"},
		{"CLIENT GETNAME", "$2 me"},
		{"CLIENT SETINFO LIB-NAME go", "+OK"},
		{"CLIENT SETINFO LIB-VER 1", "+OK"},
		{"CLIENT SETINFO x 1", "-ERR Unrecognized option 'x'"},
		{"CLIENT ID", ":1"},
		{"HELLO 4", "-NOPROTO unsupported protocol version"},
		{
			"HELLO 3 AUTH default x SETNAME you",
			"%7 $6 server $5 redis $7 version $6 7.0.15 $5 proto :3 $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0",
		},
		{
			"CLIENT INFO",
			"=98 txt:id=1 name=you db=0 multi=-1 watch=0 cmd=client|info user=default resp=3 lib-name=go lib-ver=1\n",
		},
		{"GET none", "_"},
		{"HSET h f 1", ":1"},
		{"HGETALL h", "%1 $1 f $1 1"},
		{"SADD t x", ":1"},
		{"SMEMBERS t", "~1 $1 x"},
		{"SPOP t 1", "~1 $1 x"},
		{"LPOP none 1", "_"},
		{"CONFIG GET save", "%1 $4 save $0 "},
		{"WATCH h", "+OK"},
		{"MULTI", "+OK"},
		{"MULTI", "-ERR MULTI calls can not be nested"},
		{"WATCH h", "-ERR WATCH inside MULTI is not allowed"},
		{"SELECT 1", "+QUEUED"},
		{"DBSIZE", "+QUEUED"},
		{"EXEC", "*2 +OK :0"},
		{"SELECT 0", "+OK"},
		{"EXEC", "-ERR EXEC without MULTI"},
		{"DISCARD", "-ERR DISCARD without MULTI"},
		{"WATCH h", "+OK"},
		{"DEL h", ":1"},
		{"MULTI", "+OK"},
		{"EXEC", "_"},
		{"MULTI", "+OK"},
		{"nonsense", "-ERR unknown command 'nonsense', with args beginning with: "},
		{"EXEC", "-EXECABORT Transaction discarded because of previous errors."},
		{"MULTI", "+OK"},
		{"SET k v", "+QUEUED"},
		{"DISCARD", "+OK"},
		{"EXISTS k", ":0"},
		{"RESET", "+RESET"},
		{"GET none", "$-1"},
		{"QUIT", "+OK"},
	} {
		got := strings.TrimSuffix(strings.ReplaceAll(cl.do(c.request), "\r\n", " "), " ")
		assert.Equal(t, c.want, got, c.request)
	}
}

func TestTimesToLiveFollowTheClock(t *testing.T) {
	c := newClient(t)
	for _, step := range []struct {
		wait          int64 // milliseconds
		request, want string
	}{
		{0, "SET k v EX 10", "+OK"},
		{0, "TTL k", ":10"},
		{499, "TTL k", ":10"}, // rounded: 9.501 s are left
		{0, "PTTL k", ":9501"},
		{0, "EXPIRE k 5 GT", ":0"},
		{0, "EXPIRE k 50 NX", ":0"},
		{0, "EXPIRE k 50 LT", ":0"},
		{0, "EXPIRE k 50 XX", ":1"},
		{0, "EXPIRE k 60 GT", ":1"},
		{0, "EXPIRE k 5 LT", ":1"},
		{0, "SET k w KEEPTTL", "+OK"},
		{0, "APPEND k x", ":2"},
		{5000, "GET k", "$2 wx"},
		{1, "GET k", "$-1"},
		{0, "TTL k", ":-2"},
		{0, "SET k 1 PX 100", "+OK"},
		{0, "INCR k", ":2"},
		{0, "PTTL k", ":100"},
		{0, "GETSET k 3", "$1 2"},
		{0, "TTL k", ":-1"},
		{0, "EXPIRE k 5 GT", ":0"},
		{0, "EXPIRE k 5 LT", ":1"},
		{0, "SET k 4", "+OK"},
		{0, "PTTL k", ":-1"},
		{0, "RPUSH l a", ":1"},
		{0, "PEXPIRE l 7", ":1"},
		{8, "LLEN l", ":0"},
		{0, "SET k v EXAT 1", "+OK"},
		{0, "DBSIZE", ":1"}, // nobody has looked at it
		{0, "EXISTS k", ":0"},
		{0, "DBSIZE", ":0"},
		{0, "SET k v", "+OK"},
		{0, "EXPIRE k 0", ":1"},
		{0, "DBSIZE", ":0"},
		{0, "SET k v PXAT 1700000010000", "+OK"},
		{0, "EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command"},
		{0, "PEXPIRE k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"},
		{0, "PEXPIRE k -9223372036854775808", ":1"},
		{0, "EXISTS k", ":0"},
	} {
		c.millis += step.wait
		got := strings.TrimSuffix(strings.ReplaceAll(c.do(step.request), "\r\n", " "), " ")
		assert.Equal(t, step.want, got, step.request)
	}
}

func TestSessionsSelectForThemselvesAndShareTheStore(t *testing.T) {
	c := newClient(t)
	other := c.set.NewSession()
	c.do("SELECT 3")
	c.do("SET k v")
	out := buffer.New(64)
	other.Execute([][]byte{[]byte("GET"), []byte("k")}, out)
	other.Execute([][]byte{[]byte("SELECT"), []byte("3")}, out)
	other.Execute([][]byte{[]byte("GET"), []byte("k")}, out)
	assert.Equal(t, "$-1\r\n+OK\r\n$1\r\nv\r\n", string(out.Bytes()))
	assert.Contains(t, c.do("INFO clients"), "connected_clients:2\r\n")
	other.Close()
	assert.Contains(t, c.do("INFO clients"), "connected_clients:1\r\n")
	assert.Contains(t, c.do("INFO"), "db3:keys=1,expires=0")
}

func TestSPopTakesAnyMember(t *testing.T) {
	c := newClient(t)
	first := map[string]bool{}
	for range 200 {
		c.do("SADD set a b c d e")
		first[c.do("SPOP set")] = true
		c.do("DEL set")
	}
	assert.Len(t, first, 5)
}

func TestOnlyQuitAsksToBeDisconnected(t *testing.T) {
	c := newClient(t)
	out := buffer.New(64)
	assert.False(t, c.session.Execute([][]byte{[]byte("PING")}, out))
	assert.True(t, c.session.Execute([][]byte{[]byte("qUIT"), []byte("now")}, out))
}

func TestAppendStopsAtTheLargestString(t *testing.T) {
	c := newClient(t)
	c.do("SET k v")
	sh := c.session.db.Lock([]byte("k"))
	e := sh.Find([]byte("k"))
	e.Str = make([]byte, maxStringBytes-2, maxStringBytes) // never touched: it takes no memory
	sh.Unlock()
	assert.Equal(t, fmt.Sprintf(":%d\r\n", maxStringBytes-1), c.do("APPEND k x"))
	assert.Equal(t, fmt.Sprintf(":%d\r\n", maxStringBytes), c.do("APPEND k y"))
	assert.Equal(t, errStringTooLong, c.do("APPEND k z"))
	assert.Equal(t, fmt.Sprintf(":%d\r\n", maxStringBytes), c.do("STRLEN k"))
}

func TestUsualCommandsAllocateNothing(t *testing.T) {
	c := newClient(t)
	out := buffer.New(4096)
	c.do("SET counter 1000000000")
	c.do("HSET hash field value")
	for _, request := range []string{
		"SET key value", "SET key value EX 100", "GET key", "MSET key 1 other 2", "MGET key other none",
		"INCR counter", "EXISTS key",
		"HGET hash field", "PING", "EXPIRE key 100", "TTL key",
	} {
		var args [][]byte
		for _, word := range strings.Fields(request) {
			args = append(args, []byte(word))
		}
		c.session.Execute(args, out)
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			out.Truncate(0)
			c.session.Execute(args, out)
		}), request)
	}
}

func BenchmarkExecute(b *testing.B) {
	c := newClient(b)
	out := buffer.New(4096)
	for _, request := range []string{
		"PING", "SET key:000000000001 xxx", "GET key:000000000001", "INCR counter", "MGET a b c d e f g h i j",
	} {
		var args [][]byte
		for _, word := range strings.Fields(request) {
			args = append(args, []byte(word))
		}
		b.Run("command="+string(args[0]), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out.Truncate(0)
				c.session.Execute(args, out)
			}
		})
	}
}
