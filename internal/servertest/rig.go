package servertest

import (
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// Main is a TestMain that fails when goroutines or descriptors are left, and returns the exit code.
func Main(m *testing.M) int {
	WarmUp()
	left := count()
	ManyAtOnce()
	code := m.Run()
	if code == 0 && !left.gone(runtime.GC) { // which closes what only finalizers know
		fmt.Fprintln(os.Stderr, left)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		code = 1
	}
	return code
}

// ManyAtOnce lets eight parallel tests run at once, also with few processors: they wait most of their time. A plain
// user runs one, since the rings of all processes of a user count against RLIMIT_MEMLOCK. It belongs into a TestMain;
// the flag -parallel goes before it.
func ManyAtOnce() {
	n := "8"
	if os.Geteuid() != 0 {
		n = "1"
	}
	if err := flag.Set("test.parallel", n); err != nil {
		panic(err)
	}
}

// WarmUp makes Go's runtime open what it keeps for good.
func WarmUp() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	defer l.Close()
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
	}
}

// Balance checks at the very end of the test that there are not more goroutines and descriptors than now.
func Balance(t testing.TB) {
	WarmUp()
	left := count()
	t.Cleanup(func() {
		if !left.gone(func() {}) {
			t.Error(left)
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		}
	})
}

// held is what a process has at some time.
type held struct{ goroutines, descriptors int }

func count() held { return held{runtime.NumGoroutine(), testenv.OpenDescriptors()} }

// gone waits until there is no more than h. What has ended may need a while: a worker pool's goroutines, for one.
func (h held) gone(before func()) bool {
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		before()
		if now := count(); now.goroutines <= h.goroutines && now.descriptors <= h.descriptors {
			return true
		}
	}
	return false
}

// String tells h from what there is now.
func (h held) String() string {
	now := count()
	return fmt.Sprintf("left over: goroutines %d, at first %d; descriptors %d, at first %d",
		now.goroutines, h.goroutines, now.descriptors, h.descriptors)
}

// Rig is a server and the account of its channels. The test ends with all channels closed by themselves once the
// clients are, and all buffers released.
type Rig struct {
	T       testing.TB
	Server  *weir.Server
	Network string
	Address string
	Pools   []*buffer.Pool // of the loops
	Value   any            // what a test finds by RigOf

	Active, Inactive, Closed atomic.Int64 // channels that came so far
	wrong                    atomic.Int64 // channels whose Active or Inactive came twice, or in the wrong order
}

// Start starts srv on "tcp" or "unix", with init filling its pipelines behind the account's own handler. A server that
// is not there is testenv's matter.
func (r *Rig) Start(t testing.TB, network string, srv *weir.Server, init func(*pipeline.Pipeline) error) {
	t.Helper()
	r.T, r.Server, r.Network = t, srv, network
	srv.Init = func(p *pipeline.Pipeline) error {
		if err := p.AddLast("account", &account{rig: r}); err != nil {
			return err
		}
		return init(p)
	}
	srv.Channel.Closed = func(*channel.Channel) { r.Closed.Add(1) }
	address := "127.0.0.1:0"
	if network == "unix" {
		address = SocketPath(t)
	}
	r.Address = Start(t, srv, network, address).String()
	t.Cleanup(r.end)
	r.Pools = make([]*buffer.Pool, srv.Group().Len())
	for i := range r.Pools {
		r.OnLoop(i, func(l *loop.Loop) { r.Pools[i] = l.Pool() })
	}
}

// end runs after the clients were closed.
func (r *Rig) end() {
	assert.True(r.T, Poll(func() bool {
		return r.Closed.Load() >= r.Active.Load() && r.Inactive.Load() >= r.Active.Load()
	}), "channels stay open: %d active, %d inactive, %d closed", r.Active.Load(), r.Inactive.Load(), r.Closed.Load())
	assert.NoError(r.T, r.Server.Close())
	assert.Equal(r.T, r.Active.Load(), r.Inactive.Load(), "Inactive comes once for each Active")
	assert.Zero(r.T, r.wrong.Load(), "channels whose Active or Inactive came at a wrong time")
	for i, p := range r.Pools {
		assert.Zero(r.T, p.Outstanding(), "buffers of loop %d: %s", i, strings.Join(p.Leaks(), "\n"))
		assert.Zero(r.T, p.OutstandingBytes(), "bytes of the buffers of loop %d", i)
	}
}

// account stands first in each pipeline and counts.
type account struct {
	rig              *Rig
	active, inactive int
}

func (a *account) ChannelActive(ctx *pipeline.Context) error {
	if a.active++; a.active > 1 {
		a.rig.wrong.Add(1)
	}
	a.rig.Active.Add(1)
	ctx.FireActive()
	return nil
}

func (a *account) ChannelInactive(ctx *pipeline.Context) error {
	if a.inactive++; a.inactive > 1 || a.active == 0 {
		a.rig.wrong.Add(1)
	}
	ctx.FireInactive() // when it is counted, all handlers have seen it
	a.rig.Inactive.Add(1)
	return nil
}

// RigOf returns the rig of an accepted channel. Handlers ask for it this way, because they may run before Start has
// returned. Any loop.
func RigOf(ctx *pipeline.Context) *Rig { return ctx.Pipeline().Get("account").(*account).rig }

// OnLoop runs fn on a loop and waits for it.
func (r *Rig) OnLoop(i int, fn func(*loop.Loop)) {
	r.T.Helper()
	done := make(chan struct{})
	l := r.Server.Group().Loop(i)
	Eventually(r.T, func() bool { return l.Execute(func() { defer close(done); fn(l) }) == nil }, "room for a task")
	Receive(r.T, done, "the end of a task")
}

// Held returns the buffers and the bytes that the pools of all loops have handed out.
func (r *Rig) Held() (bufs, bytes int) {
	r.T.Helper()
	for i, p := range r.Pools {
		r.OnLoop(i, func(*loop.Loop) {
			bufs += p.Outstanding()
			bytes += p.OutstandingBytes()
		})
	}
	return bufs, bytes
}
