package sink

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a store will never take stops nothing: it is set aside, or dropped where that is wanted, counted and said.
func TestWhatIsRejectedStopsNothing(t *testing.T) {
	for _, policy := range []string{"set aside", "dropped"} {
		var log strings.Builder
		var mu sync.Mutex
		store, aside := &memory{reject: "poison"}, &memory{fail: errors.New("no space")}
		cfg := Config{
			RetryAfter: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil)),
		}
		if policy == "set aside" {
			cfg.Rejected = aside
		}
		q, err := NewQueue(store, cfg)
		require.NoError(t, err)
		require.NoError(t, q.Put([]byte("a\npoison 1\nb\npoison 2\n"), 4))
		if policy == "set aside" {
			require.Eventually(t, func() bool { _, calls := aside.seen(); return calls > 2 }, patience,
				time.Millisecond)
			_, calls := store.seen()
			assert.Equal(t, 1, calls, "the others are not stored twice")
			aside.set(nil)
		}
		require.NoError(t, q.Put([]byte("c\n"), 1))
		require.NoError(t, closeIn(t, q, patience))
		got, _ := store.seen()
		assert.Equal(t, "a\nb\nc\n", got)
		kept, _ := aside.seen()
		if policy == "set aside" {
			assert.Equal(t, "poison 1\npoison 2\n", kept)
			assert.True(t, aside.closed)
		}
		stats := q.Stats()
		assert.EqualValues(t, 3, stats.DeliveredRecords)
		assert.EqualValues(t, 2, stats.RejectedRecords)
		assert.EqualValues(t, len(got), stats.DeliveredBytes)
		assert.Zero(t, stats.QueuedBytes)
		assert.Contains(t, log.String(), "rejects records for good")
		assert.Contains(t, log.String(), policy)
	}
}

// What can be set aside nowhere stops nothing either.
func TestWhatIsRejectedTwiceIsDropped(t *testing.T) {
	store, aside := &memory{reject: "poison"}, &memory{reject: "poison"}
	q, err := NewQueue(store, quiet(Config{Rejected: aside}))
	require.NoError(t, err)
	require.NoError(t, q.Put([]byte("poison\na\n"), 2))
	require.NoError(t, closeIn(t, q, patience))
	got, _ := store.seen()
	assert.Equal(t, "a\n", got)
	assert.EqualValues(t, 1, q.Stats().RejectedRecords)
}
