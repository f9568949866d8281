package store

import (
	"slices"
	"sync/atomic"
)

// Watch notices when one of its keys changes, expires or is removed. It belongs to one goroutine.
type Watch struct {
	changed atomic.Bool
	keys    []*watchedKey
}

// watchedKey belongs to whoever holds the lock of its shard.
type watchedKey struct {
	watch   *Watch
	db      *DB
	key     string
	expired bool // when it was added, and nobody has removed it since
}

// Len is how many keys are watched.
func (w *Watch) Len() int { return len(w.keys) }

// Add watches a key from now on. It borrows key until return. held says that the caller holds the locks of the Store.
func (w *Watch) Add(db *DB, key []byte, held bool) {
	sh := db.shard(key)
	if !held {
		sh.mu.Lock()
		defer sh.mu.Unlock()
	}
	name := string(key)
	if slices.ContainsFunc(sh.watches[name], func(k *watchedKey) bool { return k.watch == w }) {
		return
	}
	if sh.watches == nil {
		sh.watches = make(map[string][]*watchedKey)
	}
	e := sh.entries[name]
	k := &watchedKey{w, db, name, e != nil && sh.expired(e)}
	sh.watches[name] = append(sh.watches[name], k)
	w.keys = append(w.keys, k)
}

// Changed reports whether a key has changed since it was added. The caller holds the locks of the Store.
func (w *Watch) Changed() bool {
	for _, k := range w.keys {
		sh := k.db.shard([]byte(k.key))
		if e := sh.entries[k.key]; e != nil && !k.expired && sh.expired(e) {
			return true
		}
	}
	return w.changed.Load()
}

// Reset watches nothing any more. held says that the caller holds the locks of the Store.
func (w *Watch) Reset(held bool) {
	for _, k := range w.keys {
		sh := k.db.shard([]byte(k.key))
		if !held {
			sh.mu.Lock()
		}
		others := slices.DeleteFunc(sh.watches[k.key], func(other *watchedKey) bool { return other == k })
		if sh.watches[k.key] = others; len(others) == 0 {
			delete(sh.watches, k.key)
		}
		if !held {
			sh.mu.Unlock()
		}
	}
	w.keys = nil
	w.changed.Store(false)
}

// Touch tells those that watch e's key that e has changed. Methods of Shard do so themselves.
func (sh *Shard) Touch(e *Entry) {
	if len(sh.watches) > 0 {
		sh.touch(e.key)
	}
}

func (sh *Shard) touch(key string) {
	for _, k := range sh.watches[key] {
		if k.expired && sh.entries[key] == nil {
			k.expired = false // what has expired before does not change by going
			continue
		}
		k.watch.changed.Store(true)
	}
}
