//go:build linux

package weir_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/pipeline"
)

// tagged sends its connection's tag at once and hands out its Ref.
type tagged struct {
	tag      uint64
	joined   func(tag uint64, ref pipeline.Ref)
	inactive *atomic.Int64
}

func (h *tagged) ChannelActive(ctx *pipeline.Context) error {
	h.joined(h.tag, ctx.Ref())
	return ctx.WriteBytes(binary.BigEndian.AppendUint64(nil, h.tag))
}

func (h *tagged) ChannelInactive(*pipeline.Context) error {
	h.inactive.Add(1)
	return nil
}

// handles are Refs, most of them stale.
type handles struct {
	mu   sync.Mutex
	tags []uint64
	refs []pipeline.Ref
}

func (h *handles) add(tag uint64, ref pipeline.Ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tags = append(h.tags, tag)
	h.refs = append(h.refs, ref)
}

// any returns a handle: every other one of the newest, which may be open.
func (h *handles) any() (tag uint64, ref pipeline.Ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.refs)
	if n == 0 {
		return 0, nil
	}
	k := rand.IntN(n)
	if rand.IntN(2) == 0 {
		k = n - 1 - rand.IntN(min(n, 64))
	}
	return h.tags[k], h.refs[k]
}

func TestAStaleRefNeverReachesAnotherConnection(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns, atOnce, tags = 3000, 16, 10
		var h handles
		var tag, inactive atomic.Int64
		srv := &weir.Server{Transport: kind, Loops: 2, Init: only(func() any {
			return &tagged{tag: uint64(tag.Add(1))<<32 | 0xfeed, joined: h.add, inactive: &inactive}
		})}
		addr := startTCP(t, srv)
		stop := make(chan struct{})
		var writers sync.WaitGroup
		var written, closed atomic.Int64
		for range 3 { // write each connection's own tag to it, also long after it was closed
			writers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					tag, ref := h.any()
					if ref == nil || i%64 == 0 { // the loops need the processor, too
						sleepABit()
						continue
					}
					switch err := ref.TryWrite(binary.BigEndian.AppendUint64(nil, tag)); {
					case err == nil:
						written.Add(1)
					case errors.Is(err, pipeline.ErrClosed):
						closed.Add(1)
					}
				}
			})
		}
		err := all(atOnce, func(int) error {
			for range conns / atOnce {
				c, err := net.Dial("tcp", addr) // descriptors are used again and again
				if err != nil {
					return err
				}
				_ = c.SetDeadline(time.Now().Add(patience))
				err = onlyTag(c, tags)
				c.Close()
				if err != nil {
					return err
				}
			}
			return nil
		})
		close(stop)
		writers.Wait()
		require.NoError(t, err)
		assert.NotZero(t, written.Load())
		assert.NotZero(t, closed.Load())
		eventually(t, func() bool { return inactive.Load() == tag.Load() }, "Inactive once for each connection")
		t.Logf("%d connections, %d writes, %d writes to closed ones", tag.Load(), written.Load(), closed.Load())
	})
}

// onlyTag reads n tags, which all have to be the first.
func onlyTag(c net.Conn, n int) error {
	var first uint64
	buf := make([]byte, 8)
	for i := range 1 + n {
		if i > 0 && i%2 == 0 { // some go without having read all
			continue
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
		got := binary.BigEndian.Uint64(buf)
		if i == 0 {
			first = got
		}
		if got != first || uint32(got) != 0xfeed {
			return fmt.Errorf("bytes of another connection: tag %x after %x", got, first)
		}
	}
	return nil
}

func TestCloseFromManyGoroutinesClosesOnce(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns, closers = 300, 8
		refs := make(chan pipeline.Ref, conns)
		var inactive atomic.Int64
		srv := &weir.Server{Transport: kind, Loops: 2, Init: only(func() any {
			return &tagged{joined: func(_ uint64, ref pipeline.Ref) { refs <- ref }, inactive: &inactive}
		})}
		addr := startTCP(t, srv)
		for i := range conns {
			c := connect(t, "tcp", addr)
			ref := receive(t, refs, "the Ref")
			require.NoError(t, all(closers+1, func(n int) error {
				if n == closers { // and the peer, too
					if i%2 == 0 {
						return c.Close()
					}
					_, err := io.Copy(io.Discard, c)
					return errors.Join(err, c.Close())
				}
				if err := ref.Close(); err != nil && !errors.Is(err, pipeline.ErrClosed) {
					return err
				}
				return nil
			}))
			receive(t, ref.Closed(), "the end")
			require.ErrorIs(t, ref.Close(), pipeline.ErrClosed)
			require.ErrorIs(t, ref.TryWrite([]byte("x")), pipeline.ErrClosed)
			require.ErrorIs(t, ref.Execute(func(*pipeline.Context) {}), pipeline.ErrClosed)
			assert.Zero(t, ref.Pending())
		}
		assert.EqualValues(t, conns, inactive.Load())
	})
}
