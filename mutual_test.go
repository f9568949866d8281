//go:build linux

package weir_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
)

// writer writes to another server's channel until that has no room, when its own channel reads something.
type writer struct {
	refs chan pipeline.Ref // its own channel's goes here
	to   chan pipeline.Ref // to whom it writes
	errs chan error
}

func (w *writer) ChannelActive(ctx *pipeline.Context) error {
	w.refs <- ctx.Ref()
	return nil
}

func (w *writer) ChannelRead(*pipeline.Context, any) error {
	to := <-w.to // a moment: the other server is at the same
	w.to <- to
	for {
		if err := to.Write(context.Background(), make([]byte, 64<<10)); err != nil {
			w.errs <- err
			return nil
		}
	}
}

// Two servers whose handlers write to each other's slow peers would wait for each other for good.
func TestServersThatWriteToEachOtherDoNotStopEachOther(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		var refs, to [2]chan pipeline.Ref
		errs := make(chan error, 2)
		for i := range refs {
			refs[i], to[i] = make(chan pipeline.Ref, 1), make(chan pipeline.Ref, 1)
		}
		var peers [2]io.Writer
		for i := range refs {
			srv := &weir.Server{Transport: kind, Loops: 1, Channel: channel.Config{MaxPendingBytes: 1 << 20}}
			srv.Init = only(func() any { return &writer{refs: refs[i], to: to[i], errs: errs} })
			peers[i] = connect(t, "tcp", startTCP(t, srv)) // reads nothing
		}
		for i := range refs {
			to[1-i] <- receive(t, refs[i], "the channel of a server")
		}
		for _, peer := range peers {
			_, err := io.WriteString(peer, "go")
			require.NoError(t, err)
		}
		for range refs {
			require.ErrorIs(t, receive(t, errs, "the end of the writes"), pipeline.ErrWouldDeadlock)
		}
	})
}

// A Dialer with loops of its own waits for them, and their handlers may be waiting for the caller's loop.
func TestADialerOfItsOwnDoesNotWaitOnAServersLoop(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		answers := make(chan error, 1)
		d := &weir.Dialer{Transport: kind, Logger: quiet()}
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		srv := &weir.Server{Transport: kind, Loops: 1, Init: only(func() any { return selfish{d, answers} })}
		c := connect(t, "tcp", startTCP(t, srv))
		_, err := io.WriteString(c, "x")
		require.NoError(t, err)
		require.ErrorIs(t, receive(t, answers, "Dial's answer"), pipeline.ErrWouldDeadlock)
	})
}
