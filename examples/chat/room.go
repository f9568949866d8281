package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/pipeline"
)

const maxNickBytes = 20

var (
	errNickTaken = errors.New("somebody else has this name")
	errNickBad   = fmt.Errorf("a name has 1 to %d letters, digits, '-' or '_'", maxNickBytes)
)

// room is everybody who chats. Any goroutine may call its methods.
type room struct {
	members weir.Set

	mu     sync.Mutex
	nicks  map[string]bool // guarded by mu
	guests int             // guarded by mu
}

// newServer returns a server with one room.
func newServer() *weir.Server {
	srv := &weir.Server{}
	r := &room{nicks: make(map[string]bool)}
	r.members.Server = srv
	r.members.Slow = missed
	srv.Init = func(p *pipeline.Pipeline) error { return p.AddLast("chatter", &chatter{room: r}) }
	return srv
}

// guest takes a free name for somebody new.
func (r *room) guest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		r.guests++
		if nick := fmt.Sprintf("guest-%d", r.guests); !r.nicks[nick] {
			r.nicks[nick] = true
			return nick
		}
	}
}

// rename gives up one name for another.
func (r *room) rename(from, to string) error {
	if !validNick(to) {
		return errNickBad
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nicks[to] {
		return errNickTaken
	}
	delete(r.nicks, from)
	r.nicks[to] = true
	return nil
}

// leave gives up a name.
func (r *room) leave(nick string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nicks, nick)
}

// say sends a line to everybody.
func (r *room) say(format string, args ...any) error {
	return r.members.Broadcast(fmt.Appendf(nil, format+"\n", args...))
}

func validNick(nick string) bool {
	for _, c := range []byte(nick) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return len(nick) >= 1 && len(nick) <= maxNickBytes
}
