//go:build linux

package weir_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

const (
	stoppedEnv   = "WEIR_TEST_STOPPED" // in the child: the server's address
	stoppedBytes = 24 << 20
)

// pressedEcho echoes, stops reading while it cannot write, and counts.
type pressedEcho struct {
	got     *atomic.Int64
	pending *atomic.Int64 // the most
}

func (e *pressedEcho) ChannelRead(ctx *pipeline.Context, msg any) error {
	e.got.Add(int64(msg.(*buffer.Buf).Len()))
	err := ctx.Write(msg)
	e.pending.Store(max(e.pending.Load(), int64(ctx.Pending())))
	return err
}

func (e *pressedEcho) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		ctx.Resume()
	} else {
		ctx.Pause()
	}
	return nil
}

// TestStoppedPeerHarmsNobodyAndGoesOnLater stops a peer process in the middle of a stream (SIGSTOP), serves another one
// meanwhile, and lets it go on: every byte comes back.
func TestStoppedPeerHarmsNobodyAndGoesOnLater(t *testing.T) {
	if addr := os.Getenv(stoppedEnv); addr != "" {
		streamToEcho(t, addr)
		return
	}
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		var got, pending atomic.Int64
		srv := &weir.Server{Transport: kind, Loops: 1, Init: only(func() any { return &pressedEcho{&got, &pending} })}
		addr := startTCP(t, srv)
		child := exec.Command(os.Args[0], "-test.run=^TestStoppedPeerHarmsNobodyAndGoesOnLater$")
		child.Env = append(os.Environ(), stoppedEnv+"="+addr)
		var out bytes.Buffer
		child.Stdout, child.Stderr = &out, &out
		require.NoError(t, child.Start())
		defer func() { _ = child.Process.Kill() }()
		require.Eventually(t, func() bool { return got.Load() > 1<<20 }, 20*time.Second, time.Millisecond)
		require.NoError(t, child.Process.Signal(syscall.SIGSTOP))

		neighbour := connect(t, "tcp", addr)
		answer := make([]byte, 4)
		for range 2000 {
			_, err := neighbour.Write([]byte("ping"))
			require.NoError(t, err)
			_, err = io.ReadFull(neighbour, answer)
			require.NoError(t, err)
		}
		assert.Less(t, pending.Load(), int64(2<<20), "what is held for the stopped peer")

		require.NoError(t, child.Process.Signal(syscall.SIGCONT))
		require.NoError(t, child.Wait(), "%s", &out)
		require.Contains(t, out.String(), "every byte came back")
	})
}

func streamToEcho(t *testing.T, addr string) {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	sent := make([]byte, stoppedBytes)
	for i := range sent {
		sent[i] = byte(i * 7 >> 3)
	}
	done := make(chan error, 1)
	go func() { _, err := c.Write(sent); done <- err }()
	back := make([]byte, stoppedBytes)
	_, err = io.ReadFull(c, back)
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.True(t, bytes.Equal(sent, back))
	fmt.Println("every byte came back")
}
