package pipelinetest

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
)

type anyHandler struct{}

func (anyHandler) HandlerRemoved(*pipeline.Context) error { return nil }

func TestWaitingRefWriteIsWokenByRoom(t *testing.T) {
	ch := NewConfig(t, Config{MaxPendingBytes: 4, Stalled: true}, Named("h", anyHandler{}))
	ref := ch.Context("h").Ref()
	require.NoError(t, ref.TryWrite([]byte("full")))
	ch.RunTasks()
	result := make(chan error, 1)
	go func() { result <- ref.Write(context.Background(), []byte("more")) }()
	waits := func() bool {
		ch.post.mu.Lock()
		defer ch.post.mu.Unlock()
		return ch.post.room != nil
	}
	for deadline := time.Now().Add(10 * time.Second); !waits(); runtime.Gosched() {
		require.True(t, time.Now().Before(deadline), "the writer does not wait")
	}
	ch.Unstall()
	select {
	case err := <-result:
		assert.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the writer was not woken")
	}
	ch.RunTasks()
	assert.Equal(t, "fullmore", ch.OutboundString())
}
