//go:build linux

package compare

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/bench/internal/frame"
	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/serve"
)

// programs is where TestMain has built everything; "" when it cannot be built here.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if _, err := exec.LookPath("gcc"); err != nil {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = lab.Build(context.Background(), "../..", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	programs = dir
	return m.Run()
}

func needPrograms(t *testing.T) {
	t.Helper()
	if programs == "" {
		t.Skip("gcc is not here, so the servers were not built")
	}
}

func start(t *testing.T, spec lab.Spec, at lab.Setting) *lab.Server {
	t.Helper()
	s, err := lab.StartServer(programs, spec, at)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Stop()) })
	return s
}

// exchange sends stream in random pieces and wants it back, on several connections at once.
func exchange(t *testing.T, address string, stream []byte, conns int) {
	t.Helper()
	errs := make(chan error, 2*conns)
	for i := range conns {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(60*time.Second)))
		go func() { errs <- sendInPieces(c, stream, uint64(i)) }()
		go func() {
			got := make([]byte, len(stream))
			n, err := io.ReadFull(c, got)
			if err == nil && string(got) != string(stream) {
				err = fmt.Errorf("%d bytes came back, not all as they were sent", n)
			}
			errs <- err
		}()
	}
	for range 2 * conns {
		require.NoError(t, <-errs)
	}
}

func sendInPieces(c net.Conn, stream []byte, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 1))
	for len(stream) > 0 {
		n := min(1+random.IntN(1<<random.IntN(18)), len(stream))
		if _, err := c.Write(stream[:n]); err != nil {
			return err
		}
		stream = stream[n:]
	}
	return nil
}

func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	return p
}

// settings are how servers are started in the comparison.
func settings(mode string) map[string]lab.Setting {
	return map[string]lab.Setting{
		"pinned, 1 P":  {Mode: mode, Loops: 1, Procs: 1},
		"pinned, 2 Ps": {Mode: mode, Loops: 1, Procs: 2},
		"two loops":    {Mode: mode, Loops: 2, CPU: lab.Anywhere},
	}
}

func TestEveryServerEchoes(t *testing.T) {
	needPrograms(t)
	stream := noise(2 << 20)
	for _, spec := range lab.Specs() {
		for name, at := range settings(serve.Echo) {
			t.Run(spec.Name+", "+name, func(t *testing.T) { exchange(t, start(t, spec, at).Address, stream, 5) })
		}
	}
}

func TestEveryServerAnswersFrames(t *testing.T) {
	needPrograms(t)
	var stream []byte
	for _, n := range []int{0, 1, 64, 1 << 10, 16 << 10, 64<<10 - 4, 64 << 10, 70_000, 3, frame.MaxPayloadBytes, 0, 64} {
		stream = frame.Append(stream, noise(n))
	}
	for range 500 {
		stream = frame.Append(stream, noise(64))
	}
	for _, spec := range lab.Specs() {
		for name, at := range settings(serve.Frames) {
			t.Run(spec.Name+", "+name, func(t *testing.T) { exchange(t, start(t, spec, at).Address, stream, 5) })
		}
	}
}

// TestEveryServerKeepsWhatASlowReaderHasNotTaken fills the sockets both ways before anything is read.
func TestEveryServerKeepsWhatASlowReaderHasNotTaken(t *testing.T) {
	needPrograms(t)
	var frames []byte
	for n := 1; len(frames) < 24<<20; n += 7919 {
		frames = frame.Append(frames, noise(n%100_000))
		frames = frame.Append(frames, noise(frame.MaxPayloadBytes-n%3))
	}
	for mode, stream := range map[string][]byte{serve.Echo: noise(24 << 20), serve.Frames: frames} {
		for _, spec := range lab.Specs() {
			t.Run(spec.Name+", "+mode, func(t *testing.T) {
				fillThenRead(t, start(t, spec, lab.Setting{Mode: mode, Loops: 1}).Address, stream)
			})
		}
	}
}

func fillThenRead(t *testing.T, address string, stream []byte) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	sent := 0
	for sent < len(stream) { // until nothing moves, or the server has taken it all
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
		n, err := c.Write(stream[sent:])
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		require.NoError(t, err)
	}
	require.NoError(t, c.SetDeadline(time.Now().Add(60*time.Second)))
	wrote := make(chan error, 1)
	go func() { wrote <- sendInPieces(c, stream[sent:], 1) }()
	got := make([]byte, len(stream))
	n, err := io.ReadFull(c, got)
	require.NoError(t, err, "after %d of %d bytes", n, len(stream))
	require.True(t, string(got) == string(stream), "what came back is not what was sent")
	require.NoError(t, <-wrote)
}

func TestEveryServerWaitsForTheRestOfAFrame(t *testing.T) {
	needPrograms(t)
	whole := frame.Append(nil, []byte("hello"))
	for _, spec := range lab.Specs() {
		t.Run(spec.Name, func(t *testing.T) {
			c, err := net.Dial("tcp", start(t, spec, lab.Setting{Mode: serve.Frames, Loops: 1}).Address)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
			// A whole frame, and half of the next one: the answer to the first must not wait for the rest.
			_, err = c.Write(append(append([]byte{}, whole...), whole[:6]...))
			require.NoError(t, err)
			got := make([]byte, len(whole))
			_, err = io.ReadFull(c, got)
			require.NoError(t, err)
			_, err = c.Write(whole[6:])
			require.NoError(t, err)
			_, err = io.ReadFull(c, got)
			require.NoError(t, err)
			require.Equal(t, whole, got)
		})
	}
}

func TestEveryServerClosesOnAFrameThatIsTooLong(t *testing.T) {
	needPrograms(t)
	for _, spec := range lab.Specs() {
		t.Run(spec.Name, func(t *testing.T) {
			c, err := net.Dial("tcp", start(t, spec, lab.Setting{Mode: serve.Frames, Loops: 1}).Address)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
			_, err = c.Write(binary.BigEndian.AppendUint32(nil, frame.MaxPayloadBytes+1))
			require.NoError(t, err)
			n, err := io.Copy(io.Discard, c)
			assert.Zero(t, n)
			assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		})
	}
}

func TestEveryServerServesAfterConnectionsWereReset(t *testing.T) {
	needPrograms(t)
	for _, spec := range lab.Specs() {
		t.Run(spec.Name, func(t *testing.T) {
			s := start(t, spec, lab.Setting{Mode: serve.Echo, Loops: 1})
			for range 50 {
				c, err := net.Dial("tcp", s.Address)
				require.NoError(t, err)
				_, err = c.Write(noise(100))
				require.NoError(t, err)
				require.NoError(t, c.(*net.TCPConn).SetLinger(0))
				require.NoError(t, c.Close())
			}
			exchange(t, s.Address, noise(1<<16), 2)
		})
	}
}

func TestProxiesCarryBothWays(t *testing.T) {
	needPrograms(t)
	r := NewRunner(Config{Programs: programs})
	backend, err := r.backend()
	require.NoError(t, err)
	defer func() { assert.NoError(t, backend.Stop()) }()
	for _, spec := range lab.Specs() {
		if spec.Proxy {
			t.Run(spec.Name, func(t *testing.T) {
				s := start(t, spec, lab.Setting{Mode: serve.Proxy, Loops: 1, Backend: backend.Address})
				exchange(t, s.Address, noise(8<<20), 4)
			})
		}
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	needPrograms(t)
	for _, spec := range lab.Specs() {
		_, err := lab.StartServer(programs, spec, lab.Setting{Mode: "dance", Loops: 1})
		assert.ErrorIs(t, err, lab.ErrNoAnswer)
		assert.ErrorContains(t, err, "dance", spec.Name)
	}
}
