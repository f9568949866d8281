package store

import (
	"math/rand/v2"
	"sync"
)

// Kind is the type of what lies under a key.
type Kind uint8

// The kinds; zero is none.
const (
	None Kind = iota
	String
	ListKind
	SetKind
	HashKind
)

//weir:immutable names
var kindNames = [...]string{"none", "string", "list", "set", "hash"}

// String is the name that the command TYPE replies with.
func (k Kind) String() string { return kindNames[k] }

// NoExpiry is what ExpireAt returns of a key that stays.
const NoExpiry = -1

// Entry is what lies under a key. It belongs to whoever holds the lock of its shard.
type Entry struct {
	Kind Kind
	Str  []byte // of a String; may be changed in place and appended to
	List *List
	Set  *Set
	Hash *Hash

	key      string
	expireAt int64 // milliseconds since 1970, when due is not 0
	due      int   // 1 + its place in the shard's heap; 0: it does not expire
}

// ExpireAt is when the key expires, in milliseconds since 1970, or NoExpiry.
func (e *Entry) ExpireAt() int64 {
	if e.due == 0 {
		return NoExpiry
	}
	return e.expireAt
}

// Shard is part of a database. Its methods need its lock, which DB.Lock and DB.LockKeys take.
type Shard struct {
	store   *Store
	mu      sync.Mutex
	entries map[string]*Entry        // guarded by mu
	due     dueHeap                  // guarded by mu
	random  rand.PCG                 // guarded by mu
	watches map[string][]*watchedKey // guarded by mu
}

// Unlock unlocks a shard that DB.Lock has locked.
func (sh *Shard) Unlock() { sh.mu.Unlock() }

// Find returns what lies under key, or nil. What has expired is removed. It borrows key until return.
func (sh *Shard) Find(key []byte) *Entry {
	e := sh.entries[string(key)]
	if e != nil && e.due != 0 && sh.expired(e) {
		sh.Remove(e)
		return nil
	}
	return e
}

// Add puts an empty entry of the kind under key, where nothing lies, and returns it. It borrows key until return.
func (sh *Shard) Add(key []byte, kind Kind) *Entry {
	e := &Entry{key: string(key)}
	e.Reset(kind)
	if sh.entries == nil {
		sh.entries = make(map[string]*Entry)
	}
	sh.entries[e.key] = e
	sh.Touch(e)
	return e
}

// Reset makes e an empty entry of the kind. When it expires does not change.
func (e *Entry) Reset(kind Kind) {
	str := e.Str
	e.Kind, e.Str, e.List, e.Set, e.Hash = kind, nil, nil, nil, nil
	switch kind {
	case String:
		e.Str = str[:0]
	case ListKind:
		e.List = &List{}
	case SetKind:
		e.Set = &Set{}
	case HashKind:
		e.Hash = &Hash{}
	}
}

// SetString makes e a string with a copy of p. The memory it had is used again unless it is far too large.
func (e *Entry) SetString(p []byte) {
	if e.Kind != String {
		e.Reset(String)
	}
	if cap(e.Str) < len(p) || cap(e.Str) > 4*len(p)+64 {
		e.Str = make([]byte, 0, len(p))
	}
	e.Str = append(e.Str[:0], p...)
}

// Remove removes e from its shard.
func (sh *Shard) Remove(e *Entry) {
	sh.Persist(e)
	delete(sh.entries, e.key)
	sh.Touch(e)
}

// RemoveEmpty removes e when nothing is in it: Redis has no empty lists, sets and hashes.
func (sh *Shard) RemoveEmpty(e *Entry) {
	switch {
	case e.Kind == ListKind && e.List.Len() == 0,
		e.Kind == SetKind && e.Set.Len() == 0,
		e.Kind == HashKind && e.Hash.Len() == 0:
		sh.Remove(e)
	}
}

// Random returns a number below n, n > 0.
func (sh *Shard) Random(n int) int {
	return int(sh.random.Uint64() % uint64(n)) // so far below 2^64 that the bias does not matter
}

// expired reports whether e's time has come. Redis keeps a key through its last millisecond.
func (sh *Shard) expired(e *Entry) bool {
	return e.due != 0 && sh.store.Now() > e.expireAt
}
