package pipeline_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
)

// model is a pipeline as a plain list. Steps are taken from inside events, on the real one and on the model; what the
// handlers then see must be what the model says.
type model struct {
	t      testing.TB
	ch     *bareChannel
	list   []*member // head to tail
	gone   []*member
	paused map[*member]bool
	muted  map[*member]bool
	made   int
	next   func() int // the next byte of the script; negative: the end
	got    []string
	depth  int
}

// member is a handler of the model; kinds says which of the interfaces below it has.
type member struct {
	m     *model
	name  string
	kinds int
	ctx   *pipeline.Context

	// Where the model thinks it would send events to after it was removed.
	before, behind *member
}

const (
	modelRead = 1 << iota
	modelWrite
	modelEvent
	modelError
	modelKinds
)

func (h *member) HandlerAdded(ctx *pipeline.Context) error {
	h.ctx = ctx
	h.m.got = append(h.m.got, "added "+h.name)
	return nil
}

func (h *member) HandlerRemoved(*pipeline.Context) error {
	h.m.got = append(h.m.got, "removed "+h.name)
	return nil
}

// handler returns a value that has exactly the interfaces of kinds.
func (h *member) handler() any {
	read := onRead(func(ctx *pipeline.Context, msg any) error {
		h.m.visit("read", h)
		ctx.FireRead(msg)
		return nil
	})
	write := onWrite(func(ctx *pipeline.Context, msg any) error {
		h.m.visit("write", h)
		return ctx.Write(msg)
	})
	event := onEvent(func(ctx *pipeline.Context, ev any) error {
		h.m.visit("event", h)
		ctx.FireEvent(ev)
		return nil
	})
	fault := onError(func(_ *pipeline.Context, err error) error {
		h.m.visit("error", h)
		return err
	})
	switch h.kinds {
	case modelRead:
		return struct {
			*member
			onRead
		}{h, read}
	case modelWrite:
		return struct {
			*member
			onWrite
		}{h, write}
	case modelEvent:
		return struct {
			*member
			onEvent
		}{h, event}
	case modelError:
		return struct {
			*member
			onError
		}{h, fault}
	case modelRead | modelWrite:
		return struct {
			*member
			onRead
			onWrite
		}{h, read, write}
	case modelRead | modelEvent | modelError:
		return struct {
			*member
			onRead
			onEvent
			onError
		}{h, read, event, fault}
	default:
		h.kinds = modelKinds - 1
		return struct {
			*member
			onRead
			onWrite
			onEvent
			onError
		}{h, read, write, event, fault}
	}
}

// visit is called by each handler that gets an event: it may change the pipeline under the event's feet.
func (m *model) visit(what string, h *member) {
	m.got = append(m.got, what+" "+h.name)
	if m.depth < 2 {
		m.depth++
		m.change()
		m.depth--
	}
}

func (m *model) step() bool {
	switch op := m.next(); {
	case op < 0:
		return false
	case op%3 == 0:
		m.change()
	default:
		m.fire(op)
	}
	m.check()
	return true
}

// change adds, removes, replaces, pauses or says something about writability.
func (m *model) change() {
	p := &m.ch.pipe
	op := m.next()
	if op < 0 {
		return
	}
	switch op % 8 {
	case 0, 1, 2:
		at := 0
		if len(m.list) > 0 {
			at = max(m.next(), 0) % (len(m.list) + 1)
		}
		m.add(at, op)
	case 3:
		if h := m.pick(); h != nil {
			m.forget(h, nil)
			_, err := p.Remove(h.name)
			require.NoError(m.t, err)
		}
	case 4:
		if h := m.pick(); h != nil {
			n := m.newMember(op)
			m.list[slices.Index(m.list, h)] = n
			m.forget(h, n)
			_, err := p.Replace(h.name, n.name, n.handler())
			require.NoError(m.t, err)
		}
	case 5:
		if h := m.any(); h != nil {
			h.ctx.Pause()
			m.paused[h] = slices.Contains(m.list, h)
		}
	case 6:
		if h := m.any(); h != nil {
			h.ctx.Resume()
			delete(m.paused, h)
		}
	case 7:
		if h := m.any(); h != nil {
			h.ctx.SetWritable(op&8 == 0)
			m.muted[h] = op&8 != 0 && slices.Contains(m.list, h)
		}
	}
}

func (m *model) newMember(op int) *member {
	m.made++
	return &member{m: m, name: fmt.Sprint(m.made), kinds: max(m.next(), op) % modelKinds}
}

func (m *model) add(at, op int) {
	p := &m.ch.pipe
	h := m.newMember(op)
	v := h.handler()
	var err error
	switch {
	case len(m.list) >= pipeline.MaxHandlers:
		require.ErrorIs(m.t, p.AddLast(h.name, v), pipeline.ErrTooManyHandlers)
		return
	case at == len(m.list):
		m.list = append(m.list, h)
		err = p.AddLast(h.name, v)
	case at == 0:
		m.list = slices.Insert(m.list, 0, h)
		err = p.AddFirst(h.name, v)
	case op&16 == 0:
		base := m.list[at].name
		m.list = slices.Insert(m.list, at, h)
		err = p.AddBefore(base, h.name, v)
	default:
		base := m.list[at-1].name
		m.list = slices.Insert(m.list, at, h)
		err = p.AddAfter(base, h.name, v)
	}
	require.NoError(m.t, err)
}

// forget takes h out of the list, unless heir has its place already, and remembers its neighbours.
func (m *model) forget(h, heir *member) {
	if heir != nil {
		h.before, h.behind = heir, heir
	} else {
		i := slices.Index(m.list, h)
		if i > 0 {
			h.before = m.list[i-1]
		}
		if i+1 < len(m.list) {
			h.behind = m.list[i+1]
		}
		m.list = slices.Delete(m.list, i, i+1)
	}
	delete(m.paused, h)
	delete(m.muted, h)
	m.gone = append(m.gone, h)
}

func (m *model) pick() *member {
	if len(m.list) == 0 {
		return nil
	}
	return m.list[max(m.next(), 0)%len(m.list)]
}

// any is a member that stands in the pipeline or has left it.
func (m *model) any() *member {
	n := max(m.next(), 0)
	if n%4 == 0 && len(m.gone) > 0 {
		return m.gone[n/4%len(m.gone)]
	}
	if len(m.list) == 0 {
		return nil
	}
	return m.list[n%len(m.list)]
}

// fire sends an event from an end, or from some handler, without changes under way, and compares who sees it.
func (m *model) fire(op int) {
	if op%3 == 1 { // with changes under way: only that it ends and the links hold
		m.ch.pipe.FireRead("x")
		m.ch.pipe.FireEvent("x")
		require.NoError(m.t, m.ch.pipe.Write("x"))
		return
	}
	m.depth = 9
	defer func() { m.depth = 0 }()
	m.got = nil
	h := m.any()
	var want []string
	switch op % 4 {
	case 0:
		want = m.inbound("read", modelRead, h)
		m.from(h, false).FireRead("x")
	case 1:
		want = m.inbound("event", modelEvent, h)
		m.from(h, false).FireEvent("x")
	case 2:
		want = m.inbound("error", modelError, h)
		m.from(h, false).FireError(errTest)
	case 3:
		want = m.outbound("write", modelWrite, h)
		require.NoError(m.t, m.from(h, true).Write("x"))
	}
	require.Equal(m.t, want, m.got)
}

func (m *model) from(h *member, tail bool) *pipeline.Context {
	switch {
	case h != nil:
		return h.ctx
	case tail:
		return m.ch.pipe.Tail()
	}
	return m.headContext()
}

// headContext is the Context before all handlers, which only Pipeline's methods use: that of a handler put there will
// do.
func (m *model) headContext() *pipeline.Context {
	first := onRemoved(func(*pipeline.Context) error { return nil })
	require.NoError(m.t, m.ch.pipe.AddFirst("first", first))
	ctx := m.ch.pipe.Context("first")
	_, err := m.ch.pipe.Remove("first")
	require.NoError(m.t, err)
	return ctx
}

// inbound lists who sees an event that h passes on.
func (m *model) inbound(what string, kind int, h *member) []string {
	var want []string
	at := 0
	if h != nil {
		if at = slices.Index(m.list, h) + 1; at == 0 {
			for h != nil && !slices.Contains(m.list, h) {
				h = h.behind
			}
			if at = slices.Index(m.list, h); at < 0 {
				at = len(m.list)
			}
		}
	}
	for _, n := range m.list[at:] {
		if n.kinds&kind != 0 {
			want = append(want, what+" "+n.name)
		}
	}
	return want
}

func (m *model) outbound(what string, kind int, h *member) []string {
	var want []string
	at := len(m.list)
	if h != nil {
		if at = slices.Index(m.list, h); at < 0 {
			for h != nil && !slices.Contains(m.list, h) {
				h = h.before
			}
			at = slices.Index(m.list, h) + 1
		}
	}
	for _, n := range slices.Backward(m.list[:at]) {
		if n.kinds&kind != 0 {
			want = append(want, what+" "+n.name)
		}
	}
	return want
}

// check compares what can be seen from outside.
func (m *model) check() {
	p := &m.ch.pipe
	var names []string
	for _, h := range m.list {
		names = append(names, h.name)
	}
	require.ElementsMatch(m.t, names, p.Names())
	require.True(m.t, slices.Equal(names, p.Names()), "want %v, have %v", names, p.Names())
	paused, muted := 0, 0
	for _, on := range m.paused {
		if on {
			paused++
		}
	}
	for _, on := range m.muted {
		if on {
			muted++
		}
	}
	require.Equal(m.t, paused == 0, p.Reading())
	require.Equal(m.t, muted == 0, p.Writable())
	require.Equal(m.t, paused != 0, m.ch.stopped, "the channel was told")
}

// runModel interprets a script of small numbers.
func runModel(t testing.TB, next func() int) {
	m := &model{t: t, ch: newBare(), paused: map[*member]bool{}, muted: map[*member]bool{}, next: next}
	for m.step() {
	}
	m.depth = 9
	m.got = nil
	var want []string
	for _, h := range slices.Backward(m.list) {
		want = append(want, "removed "+h.name)
	}
	m.ch.pipe.RemoveAll()
	require.Equal(t, want, m.got)
	for _, h := range append(m.gone, m.list...) {
		h.ctx.FireRead("x")
		h.ctx.FireError(errors.New("late"))
		require.NoError(t, h.ctx.Write("x"))
	}
	require.Equal(t, want, m.got, "nobody is there any more")
}

func TestPipelineBehavesLikeAList(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			left := 400
			runModel(t, func() int {
				if left--; left < 0 {
					return -1
				}
				return rnd.IntN(256)
			})
		})
	}
}

func FuzzPipelineBehavesLikeAList(f *testing.F) {
	f.Add([]byte{0, 0, 1, 3, 8, 2, 1, 0, 3, 0})
	f.Add([]byte{0, 1, 9, 0, 2, 5, 0, 5, 1, 0, 6, 1, 0, 4, 0, 2, 2, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		runModel(t, func() int {
			if len(script) == 0 {
				return -1
			}
			b := script[0]
			script = script[1:]
			return int(b)
		})
	})
}
