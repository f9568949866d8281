// Package store keeps the databases of a Redis-like server in memory: strings, lists, sets and hashes under keys that
// may expire.
//
// Keys are spread over shards with a lock each, so that event loops rarely wait for each other. Whoever works on keys
// locks their shards first: Lock for one key, LockKeys for several at once, LockAll for a whole database. A Store may
// be used by any goroutine.
package store

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// ErrConfig is returned for a configuration that makes no sense.
var ErrConfig = errors.New("store: bad config")

// shards is how many a database has: one bit each of a set in a uint64.
const shards = 64

// DefaultDatabases is how many databases Redis has.
const DefaultDatabases = 16

// Config configures a Store. The zero value works.
type Config struct {
	// Databases is how many there are. Zero means 16.
	Databases int
	// Now is the clock that keys expire by. It is called by any goroutine. Nil means time.Now.
	Now func() time.Time
	// Seed makes the choice of random members repeatable. Zero means a random one.
	Seed uint64
}

// Store is a set of databases.
type Store struct {
	dbs    []DB
	now    func() time.Time
	hash   maphash.Seed
	cursor atomic.Uint32 // the shard at which the next Expire begins
}

// New returns empty databases.
func New(cfg Config) (*Store, error) {
	if cfg.Databases < 0 || cfg.Databases > 1<<16 {
		return nil, fmt.Errorf("%w: %d databases", ErrConfig, cfg.Databases)
	}
	if cfg.Databases == 0 {
		cfg.Databases = DefaultDatabases
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	s := &Store{dbs: make([]DB, cfg.Databases), now: cfg.Now, hash: maphash.MakeSeed()}
	for i := range s.dbs {
		db := &s.dbs[i]
		db.store = s
		for j := range db.shards {
			db.shards[j].store = s
			db.shards[j].random = *rand.NewPCG(cfg.Seed, uint64(i*shards+j))
		}
	}
	return s, nil
}

// Databases is how many there are.
func (s *Store) Databases() int { return len(s.dbs) }

// DB returns the database with that number, or nil.
func (s *Store) DB(i int) *DB {
	if i < 0 || i >= len(s.dbs) {
		return nil
	}
	return &s.dbs[i]
}

// Now is the clock in milliseconds since 1970: the unit in which Redis counts the life of keys.
func (s *Store) Now() int64 { return s.now().UnixMilli() }

// LockAll locks all keys of all databases, for Unlock: what is done before is one step for everybody else.
func (s *Store) LockAll() {
	for i := range s.dbs {
		s.dbs[i].Held().lock()
	}
}

// Unlock unlocks what LockAll has locked.
func (s *Store) Unlock() {
	for i := range s.dbs {
		s.dbs[i].Held().Unlock()
	}
}

// Flush removes all keys of all databases. The caller holds the locks of all.
func (s *Store) Flush() {
	for i := range s.dbs {
		for j := range s.dbs[i].shards {
			sh := &s.dbs[i].shards[j]
			flushed := sh.entries
			sh.entries, sh.due = nil, nil
			for key := range sh.watches {
				if flushed[key] != nil {
					sh.touch(key)
				}
			}
		}
	}
}

// Expire removes keys whose time has come, at most budget of them, and returns how many. Keys also expire when somebody
// looks at them; this is for those that nobody looks at. It looks into each shard at most once; when its budget ends,
// the next call begins at the next shard, so that no shard has to wait for another that is always busy.
func (s *Store) Expire(budget int) int {
	now, removed := s.Now(), 0
	total := len(s.dbs) * shards
	first := int(s.cursor.Load()) % total
	for i := 0; i < total && removed < budget; i++ {
		at := (first + i) % total
		sh := &s.dbs[at/shards].shards[at%shards]
		sh.mu.Lock()
		removed += sh.expire(now, budget-removed)
		sh.mu.Unlock()
		if removed == budget {
			s.cursor.Store(uint32(at + 1))
		}
	}
	return removed
}

// DB is one database.
type DB struct {
	store  *Store
	shards [shards]Shard
}

// Lock locks the shard of a key. It borrows key until return.
func (db *DB) Lock(key []byte) *Shard {
	sh := db.shard(key)
	sh.mu.Lock()
	return sh
}

// LockKeys locks the shards of the keys keys[0], keys[step], …: what is done before Unlock is one step for everybody
// else.
func (db *DB) LockKeys(keys [][]byte, step int) Locked {
	l := Locked{db: db}
	for i := 0; i < len(keys); i += step {
		l.set |= 1 << db.index(keys[i])
	}
	l.lock()
	return l
}

// LockAll locks all keys.
func (db *DB) LockAll() Locked {
	l := db.Held()
	l.lock()
	return l
}

// Held is for whoever holds the locks of the whole Store: all keys, and locks nothing.
func (db *DB) Held() Locked { return Locked{db: db, set: 1<<shards - 1} }

func (db *DB) index(key []byte) uint {
	return uint(maphash.Bytes(db.store.hash, key) % shards)
}

func (db *DB) shard(key []byte) *Shard { return &db.shards[db.index(key)] }

// Locked is a set of locked shards.
type Locked struct {
	db  *DB
	set uint64
}

// lock goes from the lowest to the highest, so that two of them never wait for each other.
func (l Locked) lock() {
	for set := l.set; set != 0; set &= set - 1 {
		l.db.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

// Unlock unlocks them.
func (l Locked) Unlock() {
	for set := l.set; set != 0; set &= set - 1 {
		l.db.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

// Shard returns the shard of a key, which must be one of those that are locked. It borrows key until return.
func (l Locked) Shard(key []byte) *Shard { return l.db.shard(key) }

// Len is how many keys there are, those included whose time has come and that nobody has removed yet.
func (l Locked) Len() (keys, expiring int) {
	for set := l.set; set != 0; set &= set - 1 {
		sh := &l.db.shards[bits.TrailingZeros64(set)]
		keys += len(sh.entries)
		expiring += len(sh.due)
	}
	return keys, expiring
}

// Each calls fn for each key that has not expired, in no particular order.
func (l Locked) Each(fn func(key string)) {
	for set := l.set; set != 0; set &= set - 1 {
		sh := &l.db.shards[bits.TrailingZeros64(set)]
		for key, e := range sh.entries {
			if !sh.expired(e) {
				fn(key)
			}
		}
	}
}
