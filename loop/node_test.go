package loop

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// countNodes is a Completer that counts its nodes.
type countNodes struct {
	nobody
	n int
}

func (c *countNodes) RunNode(*Node) { c.n++ }

// The loop may run a node before its poster has noted that it is queued. What the poster notes then must not make the
// node look queued for ever, nor end the phase of the next poster.
func TestNodeThatRanBeforeItsPosterWasDoneCanBePostedAgain(t *testing.T) {
	l, tr := clockLoop(t)
	owner := &countNodes{}
	var n Node
	n.Init(owner)
	first := uint32(nodePush | nodeLinking)
	n.state.Store(first)
	require.True(t, l.nodes.push(&n))
	onceAt(t, l, tr, 0)
	require.Equal(t, 1, owner.n)
	n.linked(first)
	assert.Equal(t, nodeIdle, n.state.Load()&nodePhases)

	second := uint32(2*nodePush | nodeLinking) // the next poster has begun
	n.state.Store(second)
	n.linked(first)
	assert.Equal(t, second, n.state.Load())
	n.state.Store(second &^ nodePhases)

	require.True(t, l.Post(&n))
	onceAt(t, l, tr, 0)
	assert.Equal(t, 2, owner.n)
}

// A poster that finds another one in the middle must wait for the outcome: the other may find the loop gone.
func TestPostDoesNotPromiseWhatAnotherPosterHasNotDone(t *testing.T) {
	l, _ := clockLoop(t)
	var n Node
	n.Init(&nobody{})
	n.state.Store(nodePush | nodeLinking)
	begun, answer := make(chan struct{}), make(chan bool)
	go func() {
		close(begun)
		answer <- l.Post(&n)
	}()
	<-begun
	for range 1000 { // let it come to its answer, if it gives one too early
		runtime.Gosched()
	}
	require.NoError(t, l.Close())
	n.state.Store(0) // the other poster was refused
	assert.False(t, <-answer)
}

func TestNodeNumbersWrap(t *testing.T) {
	l, tr := clockLoop(t)
	owner := &countNodes{}
	var n Node
	n.Init(owner)
	n.state.Store(^uint32(0) &^ nodePhases)
	for range 3 {
		require.True(t, l.Post(&n))
		require.True(t, l.Post(&n))
		onceAt(t, l, tr, 0)
	}
	assert.Equal(t, 3, owner.n)
}
