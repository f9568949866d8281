package buffer_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/testenv"
)

// The model test runs random sequences of the whole API against plain byte slices. -buffer.seed replays one.

var modelSeed = flag.Uint64("buffer.seed", 0, "run only this seed of the model test")

// content is what the model knows of one Buf; all holders of the Buf share it.
type content struct {
	data    []byte
	buf     *buffer.Buf
	holders int
	root    *content // a view's block; nil for a block's own Buf
	views   int      // of a block
	lent    bool     // a block
	heap    bool     // outside the pool
	wrapped []byte   // a block: what Wrap was given
	copy    []byte   // of wrapped, to see whether it was written to
}

func (c *content) block() *content {
	if c.root != nil {
		return c.root
	}
	return c
}

// exclusive is the model of Buf.Exclusive.
func (c *content) exclusive() bool {
	b := c.block()
	if c != b {
		return c.holders == 1 && b.holders == 0 && b.views == 1 && b.wrapped == nil
	}
	return c.holders == 1 && c.views == 0 && c.wrapped == nil
}

// model holds references, each an entry of held.
type model struct {
	t      *testing.T
	rng    *rand.Rand
	pool   *buffer.Pool
	lender *lender
	held   []*content
}

func TestRandomSequencesMatchTheModel(t *testing.T) {
	if *modelSeed != 0 {
		runModel(t, *modelSeed)
		return
	}
	seeds := 100
	if !testenv.Thorough() {
		seeds = 30
	}
	for seed := range seeds {
		runModel(t, uint64(seed+1))
		if t.Failed() {
			t.Fatalf("replay with -buffer.seed=%d", seed+1)
		}
	}
}

func runModel(t *testing.T, seed uint64) {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 1)), pool: buffer.NewPool(buffer.PoolConfig{MaxFreeBytes: 64 << 10})}
	m.lender = newLender(m.pool, 1024)
	defer func() {
		if v := recover(); v != nil {
			t.Logf("replay with -buffer.seed=%d", seed)
			panic(v)
		}
	}()
	for range 400 {
		m.step()
		m.verify(seed)
	}
	for len(m.held) > 0 {
		m.release(m.rng.IntN(len(m.held)))
		m.verify(seed)
	}
	requireBalance(t, m.pool)
	require.Equal(t, m.lender.lent, m.lender.returned+m.lender.left, "seed %d: each block returns or leaves", seed)
	require.LessOrEqual(t, m.pool.FreeBytes(), 64<<10)
}

func (m *model) step() {
	if len(m.held) == 0 || len(m.held) < 24 && m.rng.IntN(5) == 0 {
		m.create()
		return
	}
	i := m.rng.IntN(len(m.held))
	c := m.held[i]
	switch m.rng.IntN(12) {
	case 0, 1:
		m.grow(c)
	case 2:
		n := m.rng.IntN(len(c.data) + 1)
		c.buf.Advance(n)
		c.data = c.data[n:]
	case 3:
		n := m.rng.IntN(len(c.data) + 1)
		c.buf.Truncate(n)
		c.data = c.data[:n:n]
	case 4:
		size := c.buf.Cap()
		if c.buf.Shrink(); c.buf.Cap() != size {
			m.moved(c)
		}
	case 5:
		m.keep(c, c.buf.RetainForTurn(), false)
	case 6:
		m.keep(c, c.buf.Retain(), true)
	case 7:
		m.held = slices.Delete(m.held, i, i+1)
		m.detach(c)
	case 8:
		off := m.rng.IntN(len(c.data) + 1)
		n := m.rng.IntN(len(c.data) - off + 1)
		m.view(c, c.buf.Slice(off, n), c.data[off:off+n])
	case 9:
		m.scratch(c)
	default:
		m.release(i)
	}
}

func (m *model) create() {
	c := &content{holders: 1}
	n := m.rng.IntN(2000)
	switch m.rng.IntN(6) {
	case 0:
		c.buf, c.heap = buffer.New(n), true
	case 1:
		c.wrapped = m.bytes(n)
		c.copy = bytes.Clone(c.wrapped)
		c.data = bytes.Clone(c.wrapped)
		c.buf, c.heap = buffer.Wrap(c.wrapped), true
	case 2, 3:
		c.buf = m.lender.lend()
		c.lent = true
		p := m.bytes(m.rng.IntN(1025))
		c.data = bytes.Clone(p)
		c.buf.Extend(copy(c.buf.Tail(), p))
	default:
		c.buf = m.pool.Get(n)
	}
	m.held = append(m.held, c)
}

// grow appends in one of the ways, where that is allowed.
func (m *model) grow(c *content) {
	n := m.rng.IntN(700)
	sole := c.holders == 1 && c.views == 0
	if !sole && n > c.buf.Room() {
		require.Panics(m.t, func() { c.buf.Append(make([]byte, n)) })
		return
	}
	p := m.bytes(n)
	before, size, returned := c.buf.Room(), c.buf.Cap(), m.lender.returned
	switch way := m.rng.IntN(4); {
	case way == 0 && sole:
		c.buf.Reserve(n)
		require.GreaterOrEqual(m.t, c.buf.Room(), n)
		c.buf.Extend(copy(c.buf.Tail(), p))
	case way == 1:
		c.buf.AppendString(string(p))
	case way == 2:
		for _, x := range p {
			c.buf.AppendByte(x)
		}
	default:
		c.buf.Append(p)
	}
	c.data = append(c.data[:len(c.data):len(c.data)], p...)
	if n > before && (c.root != nil || c.wrapped != nil || c.buf.Cap() != size || m.lender.returned != returned) {
		m.moved(c)
	}
}

// moved notes that c has a block of its own now.
func (m *model) moved(c *content) {
	if c.root != nil {
		c.root.views--
	}
	c.root, c.lent, c.wrapped = nil, false, nil
}

// keep adds a reference to what a retaining method returned for c.
func (m *model) keep(c *content, got *buffer.Buf, pastTurn bool) {
	block := c.block()
	if pastTurn && block.lent && 2*len(c.data) < m.lender.size {
		require.NotSame(m.t, c.buf, got, "below half full: copied")
		m.held = append(m.held, &content{data: bytes.Clone(c.data), buf: got, holders: 1})
		return
	}
	require.Same(m.t, c.buf, got)
	if pastTurn {
		block.lent = false
	}
	c.holders++
	m.held = append(m.held, c)
}

// detach replaces one reference to c, which is no longer in held.
func (m *model) detach(c *content) {
	got := c.buf.Detach()
	if got == c.buf {
		require.False(m.t, c.block().lent && 2*len(c.data) < m.lender.size)
		c.block().lent = false
		m.held = append(m.held, c)
		return
	}
	require.True(m.t, c.block().lent && 2*len(c.data) < m.lender.size)
	m.held = append(m.held, &content{data: bytes.Clone(c.data), buf: got, holders: 1})
	m.dropped(c)
}

func (m *model) view(c *content, v *buffer.Buf, data []byte) {
	c.block().views++
	m.held = append(m.held, &content{data: bytes.Clone(data), buf: v, holders: 1, root: c.block(), heap: c.heap})
}

// scratch uses a scratch view of c, and one of that, the way a decoder and the handlers behind it do.
func (m *model) scratch(c *content) {
	var outer, inner buffer.Buf
	s, data := &outer, c.data
	off := m.rng.IntN(len(data) + 1)
	data = data[off : off+m.rng.IntN(len(data)-off+1)]
	c.buf.Scratch(s, off, len(data))
	if m.rng.IntN(2) == 0 {
		off := m.rng.IntN(len(data) + 1)
		data = data[off : off+m.rng.IntN(len(data)-off+1)]
		s = s.Scratch(&inner, off, len(data))
	}
	require.True(m.t, bytes.Equal(data, s.Bytes()))
	require.Equal(m.t, c.buf.Cap(), s.Cap())
	require.Zero(m.t, s.Room())
	require.False(m.t, s.Exclusive())
	switch m.rng.IntN(5) {
	case 0:
		m.view(c, s.RetainForTurn(), data)
	case 1, 2:
		var got *buffer.Buf
		if m.rng.IntN(2) == 0 {
			got = s.Retain()
		} else {
			got = s.Detach()
		}
		require.NotSame(m.t, s, got)
		if block := c.block(); block.lent && 2*len(data) < m.lender.size {
			m.held = append(m.held, &content{data: bytes.Clone(data), buf: got, holders: 1})
		} else {
			block.lent = false
			m.view(c, got, data)
		}
	case 3:
		m.view(c, s.Slice(0, len(data)), data)
	}
	s.Shrink()
	s.Advance(m.rng.IntN(len(data) + 1))
	s.Truncate(0)
	s.Release()
}

func (m *model) release(i int) {
	c := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	c.buf.Release()
	m.dropped(c)
}

// dropped notes that one reference to c is gone.
func (m *model) dropped(c *content) {
	c.holders--
	if c.holders == 0 && c.root != nil {
		c.root.views--
	}
}

// verify compares every Buf that is held with the model, and the pool's counts with what is held.
func (m *model) verify(seed uint64) {
	pooled := map[*content]bool{}
	memory := 0
	for _, c := range m.held {
		if !bytes.Equal(c.data, c.buf.Bytes()) || len(c.data) != c.buf.Len() {
			require.Equal(m.t, c.data, c.buf.Bytes(), "seed %d", seed)
		}
		if c.exclusive() != c.buf.Exclusive() {
			require.Equal(m.t, c.exclusive(), c.buf.Exclusive(), "seed %d: %d holders", seed, c.holders)
		}
		block := c.block()
		if block.wrapped != nil && !bytes.Equal(block.copy, block.wrapped) {
			require.Fail(m.t, "a wrapped slice was written to", "seed %d", seed)
		}
		if c.heap {
			continue
		}
		if !pooled[block] {
			memory += c.buf.Cap()
		}
		pooled[c], pooled[block] = true, true
	}
	if len(pooled) != m.pool.Outstanding() || memory != m.pool.OutstandingBytes() {
		require.Equal(m.t, len(pooled), m.pool.Outstanding(), "seed %d", seed)
		require.Equal(m.t, memory, m.pool.OutstandingBytes(), "seed %d", seed)
	}
}

// bytes returns n random bytes.
func (m *model) bytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(m.rng.Uint32())
	}
	return p
}
