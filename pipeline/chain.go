package pipeline

import (
	"fmt"
	"math/bits"
	"reflect"
	"strconv"
	"strings"
)

// AddLast puts h behind all others. An empty name is made from h's type. ErrNotHandler, ErrDuplicateName,
// ErrTooManyHandlers, ErrClosed once the channel is closed, or what h's HandlerAdded returned, which then has also gone
// to the error handlers; in each case h is not in the pipeline.
//
// A handler that is added while an event runs gets what is fired from then on by those before it: when it was put
// behind the one who adds it, that includes the event itself, once that one passes it on.
func (p *Pipeline) AddLast(name string, h any) error {
	return p.add(name, h, func() (*Context, error) { return &p.end, nil })
}

// AddFirst puts h before all others; otherwise it is AddLast.
func (p *Pipeline) AddFirst(name string, h any) error {
	return p.add(name, h, func() (*Context, error) { return p.end.next, nil })
}

// AddBefore puts h before the handler named base, nearer to the head; otherwise it is AddLast. ErrNoHandler when there
// is no base.
func (p *Pipeline) AddBefore(base, name string, h any) error {
	return p.add(name, h, func() (*Context, error) { return p.lookup(base) })
}

// AddAfter puts h behind the handler named base, nearer to the tail; otherwise it is AddLast. ErrNoHandler when there
// is no base.
func (p *Pipeline) AddAfter(base, name string, h any) error {
	return p.add(name, h, func() (*Context, error) {
		c, err := p.lookup(base)
		if err != nil {
			return nil, err
		}
		return c.next, nil
	})
}

// Remove takes a handler out and returns it: its reasons to pause and to be unwritable go, then its HandlerRemoved
// runs, from where it can still reach its neighbours. An error of HandlerRemoved goes to the error handlers behind it.
// ErrNoHandler when there is none of that name.
func (p *Pipeline) Remove(name string) (any, error) {
	p.flushOuts()
	c, err := p.lookup(name)
	if err != nil {
		return nil, err
	}
	p.remove(c)
	return c.handler, nil
}

// Replace puts h in the place of the handler named old and returns that one. h's HandlerAdded runs before old's
// HandlerRemoved, and what old then fires or writes goes to h. Errors are those of AddLast; when HandlerAdded fails,
// both are gone.
func (p *Pipeline) Replace(old, name string, h any) (any, error) {
	p.flushOuts()
	o, err := p.lookup(old)
	if err != nil {
		return nil, err
	}
	k := kindsOf(h)
	if err := notQuite(h, k); err != nil {
		return nil, err
	}
	if k == 0 {
		return nil, fmt.Errorf("%w: %T", ErrNotHandler, h)
	}
	if name == "" {
		name = p.nameFor(h)
	} else if name != old && p.find(name) != nil {
		return nil, fmt.Errorf("%w: %q", ErrDuplicateName, name)
	}
	had := p.detach(o)
	c := p.insert(name, h, k, o.next)
	o.prev, o.next = c, c
	err = p.added(c, k)
	p.removed(o, had)
	return o.handler, err
}

// Get returns the handler of that name, or nil.
func (p *Pipeline) Get(name string) any {
	if c := p.find(name); c != nil {
		return c.handler
	}
	return nil
}

// Context returns the Context of the handler of that name, or nil.
func (p *Pipeline) Context(name string) *Context { return p.find(name) }

// Names lists the handlers, head to tail.
func (p *Pipeline) Names() []string {
	names := make([]string, 0, bits.OnesCount64(p.used))
	for c := p.end.next; c != &p.end; c = c.next {
		names = append(names, c.name)
	}
	return names
}

func (p *Pipeline) add(name string, h any, before func() (*Context, error)) error {
	if p.state&emptied != 0 {
		return ErrClosed
	}
	k := kindsOf(h)
	if err := notQuite(h, k); err != nil {
		return err
	}
	if k == 0 {
		return fmt.Errorf("%w: %T", ErrNotHandler, h)
	}
	p.flushOuts() // what was written before it stood here does not pass it
	next, err := before()
	if err != nil {
		return err
	}
	if name == "" {
		name = p.nameFor(h)
	} else if p.find(name) != nil {
		return fmt.Errorf("%w: %q", ErrDuplicateName, name)
	}
	if bits.OnesCount64(p.used) >= MaxHandlers {
		return fmt.Errorf("%w: %q would be one more than %d", ErrTooManyHandlers, name, MaxHandlers)
	}
	return p.added(p.insert(name, h, k, next), k)
}

// insert links a new Context before next.
func (p *Pipeline) insert(name string, h any, k kinds, next *Context) *Context {
	index := bits.TrailingZeros64(^p.used)
	p.used |= 1 << index
	c := &Context{p: p, name: name, handler: h, kinds: k, index: uint8(index), next: next, prev: next.prev}
	c.read, _ = h.(ReadHandler)
	next.prev.next = c
	next.prev = c
	p.relink()
	return c
}

// added tells a handler that it stands in the pipeline and takes it out again when it does not like that.
func (p *Pipeline) added(c *Context, k kinds) error {
	if k&kindAdded == 0 {
		return nil
	}
	err := c.handler.(AddedHandler).HandlerAdded(c)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("pipeline: add %q: %w", c.name, err)
	if c.state&stateRemoved == 0 {
		p.flushOuts()
		p.remove(c)
	}
	p.end.FireError(err)
	return err
}

func (p *Pipeline) remove(c *Context) {
	had := p.detach(c)
	p.removed(c, had)
}

// detach unlinks c, whose next and prev go on leading to the neighbours it had, and returns the interfaces it had.
func (p *Pipeline) detach(c *Context) kinds {
	had := c.kinds
	c.kinds = 0
	c.state |= stateRemoved
	c.prev.next = c.next
	c.next.prev = c.prev
	c.read, c.nextRead, c.prevWrite = relay{}, c, nil
	p.relink()
	bit := uint64(1) << c.index
	p.used &^= bit
	p.undo(c, bit, had)
	return had
}

// undo takes back what a Context that has left holds of its channel, but for the bytes that it counts by Hold: its
// HandlerRemoved may have to do with them.
func (p *Pipeline) undo(c *Context, bit uint64, had kinds) {
	p.unpause(bit)
	if p.watch != nil {
		p.watch.set(pendingWatch{ctx: c})
	}
	if had&kindGrant != 0 && p.Open() {
		p.ch.GrantChanged() // its nothing may have been the reason
	}
	if had&kindFlush != 0 && p.Open() {
		p.ch.WantFlush() // it may have held one back
	}
	if p.unwritable&bit != 0 {
		p.unwritable &^= bit
		p.ch.WritabilityMayHaveChanged()
	}
}

// removed tells a handler that it left the pipeline.
func (p *Pipeline) removed(c *Context, had kinds) {
	if had&kindRemoved != 0 {
		if err := c.handler.(RemovedHandler).HandlerRemoved(c); err != nil {
			c.FireError(fmt.Errorf("pipeline: remove %q: %w", c.name, err))
		}
	}
	p.dropHold(c)
}

// relink makes the typed links anew.
func (p *Pipeline) relink() {
	end := &p.end
	read := end
	for c := end.prev; ; c = c.prev {
		c.nextRead = read
		if c == end {
			break
		}
		if c.kinds&kindRead != 0 {
			read = c
		}
	}
	write := end
	p.kinds = 0
	for c := end.next; ; c = c.next {
		c.prevWrite = write
		if c == end {
			break
		}
		if c.kinds&kindWrite != 0 {
			write = c
		}
		p.kinds |= c.kinds
	}
}

func (p *Pipeline) lookup(name string) (*Context, error) {
	if c := p.find(name); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrNoHandler, name)
}

func (p *Pipeline) find(name string) *Context {
	for c := p.end.next; c != &p.end; c = c.next {
		if c.name == name {
			return c
		}
	}
	return nil
}

// nameFor makes a free name from h's type: "echo", "echo#2", …
func (p *Pipeline) nameFor(h any) string {
	t := reflect.TypeOf(h)
	for t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	base, _, _ := strings.Cut(t.Name(), "[")
	if base == "" {
		base = "handler"
	}
	name := base
	for i := 2; p.find(name) != nil; i++ {
		name = base + "#" + strconv.Itoa(i)
	}
	return name
}
