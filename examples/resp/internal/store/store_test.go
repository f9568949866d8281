package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clock is a clock that the test moves.
type clock struct{ millis int64 }

func (c *clock) now() time.Time { return time.UnixMilli(c.millis) }

func newStore(t testing.TB, databases int) (*Store, *clock) {
	c := &clock{millis: 1_000_000}
	s, err := New(Config{Databases: databases, Now: c.now, Seed: 1})
	require.NoError(t, err)
	return s, c
}

// put makes key a string that expires in that many milliseconds; 0: never.
func put(s *Store, db int, key string, millis int64) {
	sh := s.DB(db).Lock([]byte(key))
	defer sh.Unlock()
	e := sh.Find([]byte(key))
	if e == nil {
		e = sh.Add([]byte(key), String)
	}
	e.SetString([]byte(key))
	if millis > 0 {
		sh.ExpireAt(e, s.Now()+millis)
	} else {
		sh.Persist(e)
	}
}

func exists(s *Store, db int, key string) bool {
	sh := s.DB(db).Lock([]byte(key))
	defer sh.Unlock()
	return sh.Find([]byte(key)) != nil
}

func size(s *Store, db int) (keys, expiring int) {
	l := s.DB(db).LockAll()
	defer l.Unlock()
	return l.Len()
}

func TestConfigsWithoutSenseAreRefused(t *testing.T) {
	for _, n := range []int{-1, 1<<16 + 1} {
		_, err := New(Config{Databases: n})
		assert.ErrorIs(t, err, ErrConfig)
	}
	s, err := New(Config{})
	require.NoError(t, err)
	assert.Equal(t, DefaultDatabases, s.Databases())
	assert.Nil(t, s.DB(-1))
	assert.Nil(t, s.DB(DefaultDatabases))
}

func TestAKeyLivesThroughItsLastMillisecond(t *testing.T) {
	s, c := newStore(t, 1)
	put(s, 0, "k", 10)
	for range 10 {
		assert.True(t, exists(s, 0, "k"))
		c.millis++
	}
	assert.True(t, exists(s, 0, "k"))
	c.millis++
	keys, expiring := size(s, 0)
	assert.Equal(t, 1, keys, "nobody has looked at it")
	assert.Equal(t, 1, expiring)
	assert.False(t, exists(s, 0, "k"))
	keys, expiring = size(s, 0)
	assert.Zero(t, keys)
	assert.Zero(t, expiring)
}

func TestExpireRemovesWhatIsDueAndNoMoreThanItsBudget(t *testing.T) {
	s, c := newStore(t, 2)
	for i := range 1000 {
		put(s, i%2, fmt.Sprint("due", i), int64(1+i%100))
		put(s, i%2, fmt.Sprint("later", i), 10_000)
		put(s, i%2, fmt.Sprint("never", i), 0)
	}
	assert.Zero(t, s.Expire(1000), "nothing is due")
	c.millis += 101
	total := 0
	for _, budget := range []int{0, 1, 99, 300, 599} {
		n := s.Expire(budget)
		assert.Equal(t, budget, n, "so much is due")
		total += n
	}
	assert.Equal(t, 999, total)
	assert.Equal(t, 1, s.Expire(1000))
	assert.Zero(t, s.Expire(1000))
	for db := range 2 {
		keys, expiring := size(s, db)
		assert.Equal(t, 1000, keys)
		assert.Equal(t, 500, expiring)
	}
}

// A shard in which there is always more to remove than the budget allows does not keep the others waiting.
func TestExpireReachesEveryShard(t *testing.T) {
	s, c := newStore(t, 1)
	busy, other := "", ""
	for i := 0; busy == "" || other == ""; i++ {
		switch key := fmt.Sprint(i); s.DB(0).index([]byte(key)) {
		case 3:
			busy = key
		case 7:
			other = key
		}
	}
	put(s, 0, other, 1)
	for round := 0; ; round++ {
		require.Less(t, round, 2*shards, "the other key was never reached")
		put(s, 0, busy, 1)
		c.millis += 2
		assert.Equal(t, 1, s.Expire(1))
		if s.DB(0).shards[7].entries[other] == nil { // Find would remove it
			break
		}
	}
}

// The heap is compared with a plain map, under random operations.
func TestExpiryFollowsAModel(t *testing.T) {
	s, c := newStore(t, 1)
	r := rand.New(rand.NewPCG(1, 2))
	model := map[string]int64{} // when it expires; 0: never
	for range 20_000 {
		key := fmt.Sprint(r.IntN(200))
		switch r.IntN(6) {
		case 0, 1:
			life := r.Int64N(50)
			put(s, 0, key, life)
			model[key] = 0
			if life > 0 {
				model[key] = c.millis + life
			}
		case 2:
			sh := s.DB(0).Lock([]byte(key))
			if e := sh.Find([]byte(key)); e != nil {
				sh.Remove(e)
			}
			sh.Unlock()
			delete(model, key)
		case 3:
			at, ok := model[key]
			ok = ok && (at == 0 || at >= c.millis)
			require.Equal(t, ok, exists(s, 0, key))
			if !ok {
				delete(model, key)
			}
		case 4:
			c.millis += r.Int64N(5)
		case 5:
			due := 0
			for key, at := range model {
				if at != 0 && at < c.millis {
					due++
					delete(model, key)
				}
			}
			require.Equal(t, due, s.Expire(1000))
		}
		expiring := 0
		for _, at := range model {
			if at != 0 {
				expiring++
			}
		}
		k, e := size(s, 0)
		require.Equal(t, len(model), k)
		require.Equal(t, expiring, e)
	}
}

func TestEachPassesOverWhatHasExpired(t *testing.T) {
	s, c := newStore(t, 1)
	put(s, 0, "stays", 0)
	put(s, 0, "goes", 1)
	c.millis += 2
	var keys []string
	l := s.DB(0).LockAll()
	l.Each(func(key string) { keys = append(keys, key) })
	l.Unlock()
	assert.Equal(t, []string{"stays"}, keys)
}

func TestFlushEmptiesAllDatabases(t *testing.T) {
	s, _ := newStore(t, 3)
	for db := range 3 {
		put(s, db, "a", 0)
		put(s, db, "b", 5)
	}
	s.Flush()
	for db := range 3 {
		keys, expiring := size(s, db)
		assert.Zero(t, keys+expiring)
	}
	put(s, 0, "a", 5)
	assert.True(t, exists(s, 0, "a"))
}

func TestDatabasesAreApart(t *testing.T) {
	s, _ := newStore(t, 2)
	put(s, 0, "a", 0)
	assert.False(t, exists(s, 1, "a"))
}

// Writers give all keys of a group one value in one step, in any order of the keys: nobody ever sees two values.
func TestLockedKeysChangeInOneStep(t *testing.T) {
	s, _ := newStore(t, 1)
	keys := [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d"), []byte("a")}
	for _, k := range keys {
		put(s, 0, string(k), 0)
	}
	set := func(value string) (before map[string]bool) {
		order := slices.Clone(keys)
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		before = map[string]bool{}
		l := s.DB(0).LockKeys(order, 1)
		defer l.Unlock()
		for _, k := range keys {
			before[string(l.Shard(k).Find(k).Str)] = true
		}
		for _, k := range order {
			l.Shard(k).Find(k).SetString([]byte(value))
		}
		return before
	}
	set("first")
	var wait sync.WaitGroup
	for w := range 4 {
		wait.Go(func() {
			for i := range 500 {
				assert.Len(t, set(fmt.Sprint(w, i)), 1)
			}
		})
	}
	wait.Wait()
}

func TestALongStringDoesNotLeaveItsMemoryToAShortOne(t *testing.T) {
	s, _ := newStore(t, 1)
	sh := s.DB(0).Lock([]byte("k"))
	defer sh.Unlock()
	e := sh.Add([]byte("k"), String)
	e.SetString(make([]byte, 1000))
	e.SetString(make([]byte, 900))
	assert.Equal(t, 1000, cap(e.Str))
	e.SetString([]byte("short"))
	assert.LessOrEqual(t, cap(e.Str), 64)
}

func TestFindingAndOverwritingAllocateNothing(t *testing.T) {
	s, _ := newStore(t, 1)
	key, value := []byte("a key"), []byte("a value of some length")
	put(s, 0, "a key", 0)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		sh := s.DB(0).Lock(key)
		e := sh.Find(key)
		e.SetString(value)
		sh.ExpireAt(e, s.Now()+1000)
		sh.Persist(e)
		_ = sh.Random(10)
		sh.Unlock()
	}))
	keys := [][]byte{key, value}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		l := s.DB(0).LockKeys(keys, 1)
		_ = l.Shard(key).Find(key)
		l.Unlock()
	}))
}
