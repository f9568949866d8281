//go:build linux

package weir_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
)

func TestEveryTicksUntilItIsStoppedOrTheServerEnds(t *testing.T) {
	srv := &weir.Server{Loops: 1, Logger: quiet(), Init: initEcho}
	ticks, over := make(chan int), make(chan struct{})
	defer close(over)
	var n, at atomic.Int32
	tick := func() {
		assert.EqualValues(t, 1, at.Add(1), "one at a time")
		defer at.Add(-1)
		select {
		case ticks <- int(n.Add(1)):
		case <-over:
		}
	}
	stop, err := srv.Every(time.Millisecond, tick)
	require.NoError(t, err)
	for i := range 5 {
		assert.Equal(t, i+1, receive(t, ticks, "a tick"))
	}
	stop()
	stop()
	panics := make(chan struct{}, 100)
	_, err = srv.Every(time.Millisecond, func() {
		select {
		case panics <- struct{}{}:
		default:
		}
		panic("in a tick")
	})
	require.NoError(t, err)
	receive(t, panics, "a tick that panics")
	receive(t, panics, "and the next")
	require.NoError(t, srv.Close()) // TestMain sees that the goroutines end

	_, err = srv.Every(time.Second, tick)
	require.ErrorIs(t, err, weir.ErrServerClosed)
	for _, bad := range []func() (func(), error){
		func() (func(), error) { return srv.Every(0, tick) },
		func() (func(), error) { return srv.Every(-1, tick) },
		func() (func(), error) { return srv.Every(1, nil) },
	} {
		_, err := bad()
		require.ErrorIs(t, err, weir.ErrConfig)
	}
}

// A drain takes as long as the channels do: what tells them something goes on until the last has closed.
func TestEveryTicksWhileTheServerShutsDown(t *testing.T) {
	var asked atomic.Int32
	srv := &weir.Server{Loops: 1, Init: only(func() any { return stubborn{&asked} })}
	c := connect(t, "tcp", startTCP(t, srv))
	eventually(t, func() bool {
		st, err := srv.Stats(background(t))
		return err == nil && st.Open == 1
	}, "the connection")
	ticks := make(chan struct{})
	_, err := srv.Every(time.Millisecond, func() {
		select {
		case ticks <- struct{}{}:
		case <-srv.Group().Loop(0).Done():
		}
	})
	require.NoError(t, err)
	down := make(chan error, 1)
	go func() { down <- srv.Shutdown(background(t)) }()
	eventually(t, func() bool { return asked.Load() == 1 }, "the shutdown")
	for range 3 {
		receive(t, ticks, "a tick")
	}
	c.Close()
	require.NoError(t, receive(t, down, "Shutdown's result"))
}
