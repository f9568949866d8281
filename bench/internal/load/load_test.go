//go:build linux

package load

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve runs handle for each connection until the test ends, and returns the address.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().String()
}

// through echoes what change makes of it.
func through(change func(p []byte) []byte) func(net.Conn) {
	return func(c net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(change(buf[:n])); err != nil {
				return
			}
		}
	}
}

func honest(p []byte) []byte { return p }

func slice(t *testing.T, cfg Config) Result {
	t.Helper()
	e, err := New(cfg)
	require.NoError(t, err)
	defer func() { assert.NoError(t, e.Close()) }()
	var r Result
	for range 5 { // on a busy machine a window may see nothing
		if r, err = e.Slice(10*time.Millisecond, 50*time.Millisecond); err != nil || r.Messages > 0 || r.Errors > 0 {
			break
		}
	}
	require.NoError(t, err)
	return r
}

func TestEveryKindOfLoadGetsItsAnswers(t *testing.T) {
	address := serve(t, through(honest))
	for name, cfg := range map[string]Config{
		"closed":             {Kind: Closed, Conns: 3, SizeBytes: 64},
		"closed, many":       {Kind: Closed, Conns: 100, SizeBytes: 64, Spin: true},
		"closed, deep":       {Kind: Closed, Conns: 3, SizeBytes: 64, Pipeline: 16, Spin: true},
		"closed, large":      {Kind: Closed, Conns: 2, SizeBytes: 16 << 10, Pipeline: 16},
		"closed, over chunk": {Kind: Closed, Conns: 2, SizeBytes: 100_000, Pipeline: 16},
		"closed, framed":     {Kind: Closed, Conns: 3, SizeBytes: 64, Pipeline: 2, Framed: true, Spin: true},
		"closed, idle ones":  {Kind: Closed, Conns: 3, SizeBytes: 64, Idle: 10},
		"open":               {Kind: Open, Conns: 7, SizeBytes: 64, Rate: 1000, Spin: true},
		"open, awake":        {Kind: Open, Conns: 7, SizeBytes: 1 << 10, Rate: 2000},
		"churn":              {Kind: Churn, Conns: 4, SizeBytes: 64, Spin: true},
		"churn, asleep":      {Kind: Churn, Conns: 1, SizeBytes: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Address = address
			r := slice(t, cfg)
			assert.Positive(t, r.Messages)
			assert.Zero(t, r.BadBytes)
			assert.Zero(t, r.Errors, r.Error)
			assert.Zero(t, r.Unanswered)
			assert.Positive(t, r.P50)
			assert.GreaterOrEqual(t, r.P99, r.P50)
			assert.Positive(t, r.LoadCPU)
			if cfg.Spin {
				assert.Positive(t, r.BusyShare)
				assert.LessOrEqual(t, r.BusyShare, 1.0)
			}
		})
	}
}

func TestALyingServerIsNoticed(t *testing.T) {
	swap := func(p []byte) []byte {
		p[0], p[len(p)-1] = p[len(p)-1], p[0]
		return p
	}
	for name, lie := range map[string]func([]byte) []byte{
		"a bit":      func(p []byte) []byte { p[len(p)/2] ^= 1; return p },
		"last byte":  func(p []byte) []byte { p[len(p)-1]++; return p },
		"order":      swap,
		"a message":  func(p []byte) []byte { return append(append([]byte{}, p...), p...) },
		"first byte": func(p []byte) []byte { p[0]--; return p },
	} {
		for _, kind := range []string{Closed, Open, Churn} {
			t.Run(name+", "+kind, func(t *testing.T) {
				cfg := Config{Address: serve(t, through(lie)), Kind: kind, Conns: 2, SizeBytes: 64, Rate: 1000}
				assert.Positive(t, slice(t, cfg).BadBytes)
			})
		}
	}
}

func TestAnotherConnectionsBytesAreNoticed(t *testing.T) {
	p := newPattern(64, false)
	assert.NotEqual(t, p.table[p.start(0):][:64], p.table[p.start(1):][:64])
	assert.Positive(t, p.differing(p.start(0), p.table[p.start(1):][:64]))
}

func TestAServerThatClosesIsAnError(t *testing.T) {
	r := slice(t, Config{
		Address: serve(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }), Kind: Closed, Conns: 2,
		SizeBytes: 64,
	})
	assert.EqualValues(t, 2, r.Errors)
	assert.NotEmpty(t, r.Error)
}

func TestAnOpenLoopChargesForAStall(t *testing.T) {
	const batch, rate = 50, 1000
	address := serve(t, func(c net.Conn) { // answers only when it has a batch, or nothing more comes
		buf := make([]byte, batch*64)
		for {
			_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			n, err := io.ReadFull(c, buf)
			if _, writeErr := c.Write(buf[:n]); writeErr != nil || errors.Is(err, io.EOF) {
				return
			}
		}
	})
	e, err := New(Config{Address: address, Kind: Open, Conns: 1, SizeBytes: 64, Rate: rate, Spin: true})
	require.NoError(t, err)
	defer func() { assert.NoError(t, e.Close()) }()
	r, err := e.Slice(0, 2*batch*time.Second/rate)
	require.NoError(t, err)
	// The i-th message of a batch has waited at least until the last one was due, not only the one that was sent first.
	assert.GreaterOrEqual(t, r.P50, batch/2*time.Second/rate-2*time.Millisecond)
	assert.Zero(t, r.Unanswered)
}

func TestMessagesInPiecesAreCountedOnce(t *testing.T) {
	e := &Engine{pattern: newPattern(64, false)}
	c := &conn{}
	got := []int{}
	for _, n := range []int{63, 1, 65, 62, 1, 128} {
		got = append(got, e.completed(c, n))
	}
	assert.Equal(t, []int{0, 1, 1, 0, 1, 2}, got)
}

func TestTouchUsesEveryIdleConnection(t *testing.T) {
	used := make(chan struct{}, 1000)
	address := serve(t, func(c net.Conn) {
		if _, err := io.CopyN(c, c, 64); err == nil {
			used <- struct{}{}
		}
		through(honest)(c)
	})
	e, err := New(Config{Address: address, Kind: Closed, Conns: 1, SizeBytes: 64, Idle: 2*touchAtOnce + 1})
	require.NoError(t, err)
	defer func() { assert.NoError(t, e.Close()) }()
	require.NoError(t, e.Touch())
	require.NoError(t, e.Touch(), "the streams go on where they were")
	for range 2*touchAtOnce + 1 {
		<-used
	}
}

func TestConfigLimits(t *testing.T) {
	ok := Config{Address: "127.0.0.1:1", Kind: Closed, Conns: maxConns, SizeBytes: 1}
	_, err := ok.validate()
	require.NoError(t, err)
	for name, change := range map[string]func(*Config){
		"not loopback":     func(c *Config) { c.Address = "192.0.2.1:1" },
		"no address":       func(c *Config) { c.Address = "" },
		"no kind":          func(c *Config) { c.Kind = "" },
		"connections":      func(c *Config) { c.Idle = 1 },
		"none":             func(c *Config) { c.Conns = 0 },
		"size":             func(c *Config) { c.SizeBytes = 0 },
		"too much at once": func(c *Config) { c.SizeBytes, c.Pipeline = maxFlight, 1 },
		"no rate":          func(c *Config) { c.Kind = Open },
		"rate":             func(c *Config) { c.Kind, c.Rate = Open, maxRate+1 },
	} {
		c := ok
		change(&c)
		_, err := c.validate()
		assert.ErrorIs(t, err, ErrConfig, name)
	}
}

func TestARunningWindowAllocatesNothing(t *testing.T) {
	address := serve(t, through(honest))
	e, err := New(Config{Address: address, Kind: Closed, Conns: 4, SizeBytes: 64, Pipeline: 2, Spin: true})
	require.NoError(t, err)
	defer func() { assert.NoError(t, e.Close()) }()
	e.measuring = true
	e.work.begin(e.now())
	polls := testing.AllocsPerRun(2000, func() { e.poll() })
	assert.Less(t, polls, 0.5, "beside what the server in this process allocates")
}
