//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
)

// What people use, with the settings that it has when nobody sets any.

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestGoRedis(t *testing.T) {
	onEachTransport(t, func(t *testing.T, port string) {
		ctx := limited(t)
		r := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:" + port})
		defer r.Close()
		require.NoError(t, r.Set(ctx, "k", "v", 0).Err())
		assert.Equal(t, "v", r.Get(ctx, "k").Val())
		assert.ErrorIs(t, r.Get(ctx, "none").Err(), goredis.Nil)
		require.NoError(t, r.HSet(ctx, "h", "a", "1", "b", "2").Err())
		assert.Equal(t, map[string]string{"a": "1", "b": "2"}, r.HGetAll(ctx, "h").Val())
		require.NoError(t, r.SAdd(ctx, "s", "x", "y").Err())
		assert.ElementsMatch(t, []string{"x", "y"}, r.SMembers(ctx, "s").Val())
		assert.Equal(t, map[string]string{"save": ""}, r.ConfigGet(ctx, "save").Val())
		hello, err := r.Do(ctx, "HELLO", "3").Result()
		require.NoError(t, err)
		assert.IsType(t, map[any]any{}, hello, "it speaks version 3")
		got, err := r.TxPipelined(ctx, func(p goredis.Pipeliner) error {
			p.Incr(ctx, "n")
			p.Incr(ctx, "n")
			return nil
		})
		require.NoError(t, err)
		assert.EqualValues(t, 2, got[1].(*goredis.IntCmd).Val())
		err = r.Watch(ctx, func(tx *goredis.Tx) error {
			require.NoError(t, r.Set(ctx, "k", "other", 0).Err())
			_, err := tx.TxPipelined(ctx, func(p goredis.Pipeliner) error { return p.Get(ctx, "k").Err() })
			return err
		}, "k")
		assert.ErrorIs(t, err, goredis.TxFailedErr)
	})
}

func TestRedigo(t *testing.T) {
	onEachTransport(t, func(t *testing.T, port string) {
		c, err := redis.Dial("tcp", "127.0.0.1:"+port, redis.DialReadTimeout(patience), redis.DialClientName("redigo"))
		require.NoError(t, err)
		defer c.Close()
		name, err := redis.String(c.Do("CLIENT", "GETNAME"))
		require.NoError(t, err)
		assert.Equal(t, "redigo", name)
		_, err = c.Do("HSET", "h", "a", 1)
		require.NoError(t, err)
		h, err := redis.StringMap(c.Do("HGETALL", "h"))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"a": "1"}, h)
		require.NoError(t, c.Send("MULTI"))
		require.NoError(t, c.Send("INCR", "n"))
		require.NoError(t, c.Send("GET", "none"))
		got, err := redis.Values(c.Do("EXEC"))
		require.NoError(t, err)
		assert.Equal(t, []any{int64(1), nil}, got)
	})
}

// Without its cache: CLIENT TRACKING, which that needs, is not here, and the client says so.
func TestRueidis(t *testing.T) {
	onEachTransport(t, func(t *testing.T, port string) {
		ctx := limited(t)
		option := rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + port}}
		_, err := rueidis.NewClient(option)
		require.Error(t, err)
		assert.ErrorIs(t, err, rueidis.ErrNoCache)
		option.DisableCache = true
		r, err := rueidis.NewClient(option)
		require.NoError(t, err)
		defer r.Close()
		require.NoError(t, r.Do(ctx, r.B().Set().Key("k").Value("v").Build()).Error())
		v, err := r.Do(ctx, r.B().Get().Key("k").Build()).ToString()
		require.NoError(t, err)
		assert.Equal(t, "v", v)
		assert.True(t, rueidis.IsRedisNil(r.Do(ctx, r.B().Get().Key("none").Build()).Error()))
		require.NoError(t, r.Do(ctx, r.B().Hset().Key("h").FieldValue().FieldValue("a", "1").Build()).Error())
		h, err := r.Do(ctx, r.B().Hgetall().Key("h").Build()).AsStrMap()
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"a": "1"}, h)
		tx := []rueidis.Completed{r.B().Multi().Build(), r.B().Incr().Key("n").Build(), r.B().Exec().Build()}
		for _, reply := range r.DoMulti(ctx, tx...) {
			require.NoError(t, reply.Error())
		}
	})
}

func TestNodeClients(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs them")
	}
	node, err := exec.LookPath("node")
	npm, err2 := exec.LookPath("npm")
	if err := errors.Join(err, err2); err != nil {
		t.Skip(err)
	}
	const version = "process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)"
	if err := exec.Command(node, "-e", version).Run(); err != nil {
		t.Skip("the clients need Node.js 20")
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "clients.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata", "node", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	install := exec.CommandContext(limited(t), npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm ci, %v: %s", err, out)
	}
	onEachTransport(t, func(t *testing.T, port string) {
		out, err := exec.CommandContext(limited(t), node, filepath.Join(dir, "clients.mjs"), port).CombinedOutput()
		assert.NoError(t, err)
		assert.Equal(t, "done\n", string(out))
	})
}

func TestRedisPy(t *testing.T) {
	const python = "/usr/bin/python3" // for which Debian installs python3-redis
	if out, err := exec.Command(python, "-c", "import redis").CombinedOutput(); err != nil {
		testenv.Require(t, "redis-py", fmt.Errorf("%w: %s", err, out))
	}
	onEachTransport(t, func(t *testing.T, port string) {
		out, err := exec.CommandContext(limited(t), python, "testdata/clients.py", port).CombinedOutput()
		assert.NoError(t, err)
		assert.Equal(t, "done\n", string(out))
	})
}
