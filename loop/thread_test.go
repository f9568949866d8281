//go:build invariants

package loop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
)

// In invariant builds what belongs to the loop panics when another goroutine calls it during a turn.
func TestCallsOffTheThreadArePanics(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	timer := l.NewTimer(p, func() {})
	require.NoError(t, l.Execute(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for name, fn := range map[string]func(){
				"Register":   func() { _, _ = l.Register(p) },
				"Unregister": func() { l.Unregister(p.reg) },
				"Submit":     func() { l.Submit(transport.Op{}) },
				"Dirty":      func() { l.Dirty(p) },
				"Reset":      func() { timer.Reset(time.Second) },
				"Stop":       func() { timer.Stop() },
			} {
				assert.Panics(t, fn, name)
			}
		}()
		<-done
	}))
	l.once(t)
	assert.Equal(t, 1, l.Stats().Registered)
}
