//go:build linux

package uring

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/ring/ringtest"
	"github.com/weirnet/weir/transport"
)

const streamBytes = 1 << 20 // what a side sends at most

// streamByte is the byte at a position of what every side sends.
func streamByte(i int) byte { return byte(i*7 + i>>8*13 + i>>16*5) }

// world is a set of connections between two transports on scripted kernels, with the model of what each may see.
type world struct {
	testing.TB
	rng     *rand.Rand
	trs     [2]*Transport
	kernels [2]*ringtest.Kernel
	calls   [2]map[transport.Token]*modelCall
	serial  uint32
	sides   []*side
	file    *os.File
}

// modelCall is an operation that was submitted.
type modelCall struct {
	side  *side
	op    transport.Op
	size  int
	n     int
	from  int // position of the first byte
	done  bool
	err   error
	conns []transport.Handle
}

// side is one end of a connection.
type side struct {
	end               int // index of its transport
	h                 transport.Handle
	peer              *side
	sent, got         int // positions: submitted to be sent, received
	recv, send, watch *modelCall
	fin, eof, closed  bool
	broken            bool // bytes may be missing at the end of what this side receives or sends
}

func newWorld(tb testing.TB, seed uint64, script ringtest.Script) *world {
	w := &world{TB: tb, rng: rand.New(rand.NewPCG(seed, 1))}
	p := make([]byte, streamBytes)
	for i := range p {
		p[i] = streamByte(i)
	}
	name := filepath.Join(tb.TempDir(), "stream")
	require.NoError(tb, os.WriteFile(name, p, 0o600))
	var err error
	w.file, err = os.Open(name)
	require.NoError(tb, err)
	for i := range w.trs {
		cfg := Config{Entries: 8 << w.rng.IntN(4), Blocks: 4 << w.rng.IntN(5), BlockBytes: 256 << w.rng.IntN(7)}
		cfg.CompletionEntries = cfg.Entries << (1 + w.rng.IntN(2))
		w.trs[i], w.kernels[i] = openScripted(tb, cfg, seed*2+uint64(i), script)
		w.calls[i] = map[transport.Token]*modelCall{}
	}
	w.calm(true)
	for range 6 {
		w.connect()
	}
	w.calm(false)
	return w
}

func (w *world) calm(on bool) {
	for _, k := range w.kernels {
		if on {
			k.Stop()
		} else {
			k.Start()
		}
	}
}

func (w *world) submit(end int, s *side, op transport.Op) *modelCall {
	w.serial++
	op.Token = transport.MakeToken(w.serial, w.serial, uint8(op.Kind))
	c := &modelCall{side: s, op: op}
	for _, b := range op.Bufs {
		c.size += b.Len()
	}
	if op.File != nil {
		c.size = int(op.File.Length)
	}
	w.calls[end][op.Token] = c
	w.trs[end].Submit(op)
	return c
}

// wait takes a batch of random size from one transport.
func (w *world) wait(end int, timeout time.Duration) {
	out, err := w.trs[end].Wait(make([]transport.Completion, 0, 1+w.rng.IntN(16)), timeout)
	require.NoError(w, err)
	for i := range out {
		w.record(end, &out[i])
	}
}

// until waits for a condition on both transports.
func (w *world) until(what string, cond func() bool) {
	for i := 0; !cond(); i++ {
		if i > 20_000 {
			for end := range w.trs {
				w.Logf("transport %d: %+v\n%+v", end, w.trs[end].Stats(), w.trs[end].Counters())
				for _, c := range w.calls[end] {
					w.Logf("  %s %+v", kindOf(c.op.Kind), c)
				}
			}
			w.Fatalf("waited in vain for %s", what)
		}
		for end := range w.trs {
			w.wait(end, time.Millisecond)
		}
	}
}

func kindOf(k transport.Kind) string {
	return [...]string{
		"None", "Recv", "Send", "SendFile", "Accept", "Connect", "WatchClose", "CloseWrite", "Close",
		"Cancel",
	}[k]
}

// connect adds a connection.
func (w *world) connect() {
	from := w.rng.IntN(2)
	to := 1 - from
	ln, err := w.trs[to].Listen(transport.ListenConfig{Network: "tcp", Address: "127.0.0.1:0", Socket: w.socket()})
	require.NoError(w, err)
	addr := w.trs[to].LocalAddr(ln)
	acc := w.submit(to, nil, transport.Op{Kind: transport.Accept, Handle: ln})
	con := w.submit(from, nil, transport.Op{
		Kind: transport.Connect, Dial: &transport.DialConfig{
			Network: "tcp", Address: addr.String(),
			Socket: w.socket(),
		},
	})
	w.until("a connection", func() bool { return con.done && len(acc.conns) == 1 })
	require.NoError(w, con.err)
	a, b := &side{end: from, h: con.conns[0]}, &side{end: to, h: acc.conns[0]}
	a.peer, b.peer = b, a
	w.sides = append(w.sides, a, b)
	closing := w.submit(to, nil, transport.Op{Kind: transport.Close, Handle: ln})
	w.until("the listener's end", func() bool { return acc.done && closing.done })
}

func (w *world) socket() transport.SocketConfig {
	if w.rng.IntN(2) == 0 {
		return transport.SocketConfig{}
	}
	return transport.SocketConfig{SendBufferBytes: 4608, ReceiveBufferBytes: 4608}
}

// record checks a completion and files it.
func (w *world) record(end int, c *transport.Completion) {
	m := w.calls[end][c.Token]
	require.NotNil(w, m, "a completion of an operation that has ended or never was: %+v", *c)
	m.n += c.N
	if c.Handle != 0 {
		m.conns = append(m.conns, c.Handle)
	}
	if c.Buf != nil {
		s := m.side
		require.Equal(w, c.N, c.Buf.Len())
		for i, v := range c.Buf.Bytes() {
			if v != streamByte(s.got+i) {
				w.Fatalf("byte %d is %#x, want %#x: lost, doubled or misplaced", s.got+i, v, streamByte(s.got+i))
			}
		}
		s.got += c.N
		require.LessOrEqual(w, s.got, s.peer.sent)
		if w.rng.IntN(4) == 0 { // somebody keeps it
			kept := c.Buf.Retain()
			defer kept.Release()
		}
		c.Buf.Release()
	}
	require.False(w, c.More && c.Err != nil)
	if c.More {
		return
	}
	m.done, m.err = true, c.Err
	delete(w.calls[end], c.Token)
	if m.side != nil {
		w.ended(m)
	}
}

// ended takes in the end of an operation.
func (w *world) ended(m *modelCall) {
	s := m.side
	canceled := errors.Is(m.err, transport.ErrCanceled)
	reset := errors.Is(m.err, syscall.ECONNRESET) || errors.Is(m.err, syscall.EPIPE)
	if reset {
		require.True(w, s.broken || s.peer.broken || s.peer.closed, "%s ended with %v on a whole connection",
			kindOf(m.op.Kind), m.err)
		s.broken, s.peer.broken = true, true
	}
	switch m.op.Kind {
	case transport.Recv:
		s.recv = nil
		s.eof = s.eof || errors.Is(m.err, io.EOF)
		require.True(w, m.err == nil && m.n >= m.op.Limit || canceled || reset || errors.Is(m.err, io.EOF),
			"%+v", m)
	case transport.Send, transport.SendFile:
		s.send = nil
		for _, b := range m.op.Bufs {
			b.Release()
		}
		switch {
		case m.err == nil:
			require.Equal(w, m.size, m.n)
		case errors.Is(m.err, transport.ErrWouldBlock):
			require.True(w, m.op.NoWait && m.n < m.size)
			s.sent = m.from + m.n
		default:
			require.True(w, canceled || reset, "%+v", m)
			s.broken, s.peer.broken = true, true
		}
	case transport.WatchClose:
		s.watch = nil
		require.True(w, m.err == nil && (s.peer.fin || s.peer.closed || s.broken || s.peer.broken) || canceled,
			"%+v", m)
	case transport.Cancel:
		require.True(w, m.err == nil || errors.Is(m.err, transport.ErrNotFound), "%+v", m)
	case transport.Close:
		require.NoError(w, m.err)
	}
}

// bufs returns the next n bytes of a side's stream in Bufs of random sizes.
func (w *world) bufs(s *side, n int) []*buffer.Buf {
	var bufs []*buffer.Buf
	for at := s.sent; at < s.sent+n; {
		piece := min(1+w.rng.IntN(1<<w.rng.IntN(15)), s.sent+n-at)
		b := w.trs[s.end].Pool().Get(piece)
		for i := range piece {
			b.AppendByte(streamByte(at + i))
		}
		bufs = append(bufs, b)
		at += piece
	}
	return bufs
}

// act does one random thing that the contract allows.
func (w *world) act(s *side) {
	if s.closed {
		return
	}
	maySend := s.send == nil && !s.fin && !s.broken && s.sent < streamBytes
	n := min(1+w.rng.IntN(1<<w.rng.IntN(17)), streamBytes-s.sent)
	switch c := w.rng.IntN(100); {
	case c < 30 && s.recv == nil && s.watch == nil && !s.broken:
		s.recv = w.submit(s.end, s, transport.Op{
			Kind: transport.Recv, Handle: s.h,
			Limit: 1 + w.rng.IntN(1<<w.rng.IntN(18)),
		})
	case c < 60 && maySend:
		s.send = w.submit(s.end, s, transport.Op{
			Kind: transport.Send, Handle: s.h, Bufs: w.bufs(s, n),
			NoWait: w.rng.IntN(2) == 0,
		})
		s.send.from = s.sent
		s.sent += n
	case c < 66 && maySend:
		f := &transport.FileRange{File: w.file, Offset: int64(s.sent), Length: int64(n)}
		s.send = w.submit(s.end, s, transport.Op{Kind: transport.SendFile, Handle: s.h, File: f})
		s.sent += n
	case c < 74 && s.recv != nil:
		w.submit(s.end, s, transport.Op{Kind: transport.Cancel, Handle: s.h, Target: transport.Recv})
	case c < 80 && s.recv == nil && s.watch == nil:
		s.watch = w.submit(s.end, s, transport.Op{Kind: transport.WatchClose, Handle: s.h})
	case c < 88 && s.watch != nil:
		w.submit(s.end, s, transport.Op{Kind: transport.Cancel, Handle: s.h, Target: transport.WatchClose})
	case c == 89 && s.send != nil:
		w.submit(s.end, s, transport.Op{Kind: transport.Cancel, Handle: s.h, Target: s.send.op.Kind})
	case c < 93 && !s.fin:
		s.fin = true
		w.submit(s.end, s, transport.Op{Kind: transport.CloseWrite, Handle: s.h})
	case c == 95 && w.rng.IntN(3) == 0:
		w.end(s)
	}
}

// end closes a side, with RST now and then. What it has not read makes the kernel reset the connection, too.
func (w *world) end(s *side) {
	reset := w.rng.IntN(3) == 0
	if reset || !s.eof || s.send != nil {
		s.broken, s.peer.broken = true, true
	}
	s.closed = true
	w.submit(s.end, s, transport.Op{Kind: transport.Close, Handle: s.h, Reset: reset})
}

// finish brings every connection to its end: what is whole is read up to EOF, and each side has got all that was sent.
func (w *world) finish() {
	w.calm(true)
	w.until("the end of all connections", func() bool {
		over := true
		for _, s := range w.sides {
			over = w.wind(s) && over
		}
		return over
	})
	for i, s := range w.sides {
		if !s.broken && !s.closed && !s.peer.closed {
			require.Equal(w, s.peer.sent, s.got, "side %d lacks bytes", i)
		}
		if !s.closed {
			s.closed = true
			w.submit(s.end, s, transport.Op{Kind: transport.Close, Handle: s.h})
		}
	}
	w.until("the end of all operations", func() bool { return len(w.calls[0])+len(w.calls[1]) == 0 })
	for i, tr := range w.trs {
		w.wait(i, 0)
		require.Zero(w, tr.Pool().Outstanding(), "%v", tr.Pool().Leaks())
		require.Zero(w, tr.Stats().Open)
		require.Equal(w, 1, w.kernels[i].Armed(), "only the poll for Wake is armed: %v", w.kernels[i])
		require.Zero(w, tr.blocks.lent)
		tr.blocks.fill()
		require.GreaterOrEqual(w, tr.blocks.free(), tr.blocks.window)
		require.Zero(w, tr.urgent)
		require.Equal(w, 1, tr.outstanding)
		require.Zero(w, tr.Stats().Stale)
	}
	for _, tr := range w.trs {
		require.NoError(w, tr.Close())
	}
	require.NoError(w, w.file.Close())
}

// wind brings a side nearer to its end and reports whether it is there.
func (w *world) wind(s *side) bool {
	if s.closed {
		return true
	}
	if s.broken || s.peer.closed {
		s.closed, s.broken, s.peer.broken = true, true, true
		w.submit(s.end, s, transport.Op{Kind: transport.Close, Handle: s.h})
		return true
	}
	if s.watch != nil && w.rng.IntN(4) == 0 {
		w.submit(s.end, s, transport.Op{Kind: transport.Cancel, Handle: s.h, Target: transport.WatchClose})
	}
	if s.recv == nil && s.watch == nil && !s.eof {
		s.recv = w.submit(s.end, s, transport.Op{Kind: transport.Recv, Handle: s.h, Limit: streamBytes})
	}
	if !s.fin && s.send == nil {
		s.fin = true
		w.submit(s.end, s, transport.Op{Kind: transport.CloseWrite, Handle: s.h})
	}
	return s.eof && s.send == nil && s.watch == nil
}

// TestRandomOperationsOnAScriptedKernel runs the real transport through random operations while everything goes wrong
// that can. Each failure names its seed; -seed=N runs it again.
func TestRandomOperationsOnAScriptedKernel(t *testing.T) {
	faults := ringtest.Script{
		ShortSend: 32, EndMultishot: 16, NoBuffers: 16, Late: 16, CancelTooLate: 64, PartialSubmit: 16, Again: 4,
		Interrupted: 8, Overflow: 8, NoSplice: 16,
	}
	old := faults
	old.LacksLimits, old.LacksVectors = true, true
	seeds := uint64(20)
	if *flagLong {
		seeds = 1000
	}
	for _, tc := range []struct {
		name   string
		script ringtest.Script
	}{{"faults", faults}, {"old", old}} {
		t.Run(tc.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var counters Counters
			var hits ringtest.Faults
			for seed := range seeds {
				if *flagSeed != 0 {
					seed = *flagSeed - 1
				}
				t.Run(fmt.Sprintf("seed=%d", seed+1), func(t *testing.T) {
					w := newWorld(t, seed, tc.script)
					for range 600 {
						w.act(w.sides[w.rng.IntN(len(w.sides))])
						if w.rng.IntN(3) == 0 {
							w.wait(w.rng.IntN(2), 0)
						}
					}
					w.finish()
					for i, tr := range w.trs {
						sum(&counters, tr.Counters())
						sum(&hits, w.kernels[i].Faults())
					}
				})
				if t.Failed() || *flagSeed != 0 {
					return
				}
			}
			t.Logf("%+v", hits)
			t.Logf("%+v", counters)
			require.NotZero(t, counters.ShortSends)
			require.NotZero(t, counters.BufferRingEmpty)
			require.NotZero(t, counters.Overflows)
			require.NotZero(t, counters.SkippedSends)
			require.NotZero(t, counters.BlocksLeft)
			require.Equal(t, tc.script.LacksLimits, counters.MultishotRearms == 0)
			require.Zero(t, counters.Lost)
		})
	}
}

// sum adds the counters of a struct to another.
func sum[T any](to *T, from T) {
	a, b := reflect.ValueOf(to).Elem(), reflect.ValueOf(from)
	for i := range a.NumField() {
		if f := a.Field(i); f.CanUint() {
			f.SetUint(f.Uint() + b.Field(i).Uint())
		}
	}
}
