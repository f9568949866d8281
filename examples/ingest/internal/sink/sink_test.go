package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
)

const patience = 30 * time.Second

var errTooLarge = errors.New("too large")

// memory is a Store that fails when it is told to.
type memory struct {
	mu     sync.Mutex
	fail   error
	reject string // lines with this text
	calls  int
	lines  []byte
	most   int
	closed bool
}

func (m *memory) Store(_ context.Context, b *Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.fail != nil {
		return m.fail
	}
	var rejected RejectedError
	for line := range bytes.Lines(b.Lines) {
		if m.reject != "" && bytes.Contains(line, []byte(m.reject)) {
			rejected.add(line, errTooLarge)
		} else {
			m.lines = append(m.lines, line...)
		}
	}
	m.most = max(m.most, len(b.Lines))
	return rejected.orNil()
}

func (m *memory) Close() error {
	m.closed = true
	return nil
}

func (m *memory) set(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

func (m *memory) seen() (string, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.lines), m.calls
}

func closeIn(t *testing.T, q *Queue, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return q.Close(ctx)
}

func quiet(cfg Config) Config {
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.RetryAfter = time.Millisecond
	return cfg
}

func TestEveryLineIsStoredOnceAndInOrderByTheTimeOfClose(t *testing.T) {
	store := &memory{}
	var level atomic.Int64
	q, err := NewQueue(store, quiet(Config{BatchBytes: 64, Changed: func(n int) { level.Add(int64(n)) }}))
	require.NoError(t, err)
	var want strings.Builder
	for i := range 1000 {
		line := fmt.Sprintf("line %d%s\n", i, strings.Repeat("x", i%100)) // some are longer than a batch
		want.WriteString(line)
		require.NoError(t, q.Put([]byte(line), 1))
	}
	require.NoError(t, closeIn(t, q, patience))
	got, _ := store.seen()
	assert.Equal(t, want.String(), got)
	assert.True(t, store.closed)
	stats := q.Stats()
	assert.EqualValues(t, 1000, stats.DeliveredRecords)
	assert.EqualValues(t, len(got), stats.DeliveredBytes)
	assert.Zero(t, stats.QueuedBytes)
	assert.Zero(t, stats.QueuedRecords)
	assert.Zero(t, level.Load())
	assert.ErrorIs(t, q.Put([]byte("late\n"), 1), ErrClosed)
}

func TestAQueueIsBounded(t *testing.T) {
	store := &memory{fail: errors.New("dead")}
	q, err := NewQueue(store, quiet(Config{BatchBytes: 10, MaxBytes: 100}))
	require.NoError(t, err)
	require.NoError(t, q.Put(make([]byte, 99), 1))
	assert.ErrorIs(t, q.Put(make([]byte, 2), 1), ErrFull)
	require.NoError(t, q.Put(make([]byte, 1), 1))
	assert.ErrorIs(t, q.Put(make([]byte, 1), 1), ErrFull)
	stats := q.Stats()
	assert.Equal(t, 100, stats.QueuedBytes)
	assert.EqualValues(t, 2, stats.RefusedRecords)
	assert.ErrorIs(t, closeIn(t, q, 0), ErrNotDelivered)
	assert.True(t, store.closed)
}

func TestWhatFailsIsStoredAgainAndSaid(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	store := &memory{fail: errors.New("no space")}
	q, err := NewQueue(store, Config{
		RetryAfter: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil)),
	})
	require.NoError(t, err)
	require.NoError(t, q.Put([]byte("a\n"), 1))
	require.Eventually(t, func() bool { _, calls := store.seen(); return calls > 3 }, patience, time.Millisecond)
	assert.EqualError(t, q.Stats().Failing, "no space")
	require.NoError(t, q.Put([]byte("b\n"), 1))
	store.set(nil)
	require.NoError(t, closeIn(t, q, patience))
	got, _ := store.seen()
	assert.Equal(t, "a\nb\n", got)
	assert.NoError(t, q.Stats().Failing)
	assert.Equal(t, 1, strings.Count(log.String(), "sink fails"), log.String())
	assert.Equal(t, 1, strings.Count(log.String(), "works again"), log.String())
}

type locked struct {
	mu *sync.Mutex
	b  *strings.Builder
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	for _, cfg := range []Config{{BatchBytes: -1}, {MaxBytes: 5, BatchBytes: 6}, {RetryAfter: -1}} {
		_, err := NewQueue(&memory{}, cfg)
		assert.ErrorIs(t, err, ErrConfig, "%+v", cfg)
	}
	for _, cfg := range []FileConfig{
		{},
		{Dir: t.TempDir(), Keep: -1},
		{Dir: t.TempDir(), MaxBytes: -1},
		{Dir: t.TempDir(), Sync: "x"},
	} {
		_, err := NewFile(cfg)
		assert.ErrorIs(t, err, ErrConfig, "%+v", cfg)
	}
}

func TestAThrottleStandsStillAndGoesOn(t *testing.T) {
	store := &memory{}
	throttle, err := NewThrottle(store, Standstill)
	require.NoError(t, err)
	q, err := NewQueue(throttle, quiet(Config{}))
	require.NoError(t, err)
	require.NoError(t, q.Put([]byte("a\n"), 1))
	require.NoError(t, throttle.SetRate(Standstill))
	_, calls := store.seen()
	assert.Zero(t, calls)
	require.NoError(t, throttle.SetRate(1))
	require.NoError(t, closeIn(t, q, patience))
	got, _ := store.seen()
	assert.Equal(t, "a\n", got)
	require.NoError(t, throttle.SetRate(1))
	require.NoError(t, throttle.Store(context.Background(), &Batch{Lines: make([]byte, 100)}),
		"a batch may be larger than the rate")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, throttle.Store(ctx, &Batch{Lines: make([]byte, 1)}), context.Canceled,
		"and the next one waits for it")
}

func readFiles(t *testing.T, dir string) (all []string) {
	t.Helper()
	names, err := Files(dir)
	require.NoError(t, err)
	for _, name := range names {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		all = append(all, string(content))
	}
	return all
}

func TestFilesRoll(t *testing.T) {
	for _, sync := range []Sync{SyncAlways, SyncInterval, SyncNever} {
		dir := t.TempDir()
		f, err := NewFile(FileConfig{Dir: dir, MaxBytes: 10, Sync: sync})
		require.NoError(t, err)
		for _, lines := range []string{"12345\n", "789\n", "x\n", "longer than a file\n", "y\n"} {
			require.NoError(t, f.Store(context.Background(), &Batch{Lines: []byte(lines)}))
		}
		require.NoError(t, f.Close())
		assert.Equal(t, []string{"12345\n789\n", "x\n", "longer than a file\n", "y\n"}, readFiles(t, dir))
	}
}

func TestTheNewestFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/other", nil, 0o644))
	f, err := NewFile(FileConfig{Dir: dir, MaxBytes: 1, Keep: 2})
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, f.Store(context.Background(), &Batch{Lines: fmt.Appendf(nil, "%d\n", i)}))
	}
	require.NoError(t, f.Close())
	assert.Equal(t, []string{"3\n", "4\n"}, readFiles(t, dir))
	assert.FileExists(t, dir+"/other")
}

// A disk that is full takes part of a batch: nothing of it stays, and when there is room again it is there once.
func TestAFullDiskTearsNoLine(t *testing.T) {
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k")
	testenv.Require(t, "mount", err)
	defer func() { assert.NoError(t, syscall.Unmount(dir, 0)) }()
	f, err := NewFile(FileConfig{Dir: dir})
	require.NoError(t, err)
	q, err := NewQueue(f, quiet(Config{BatchBytes: 20_000}))
	require.NoError(t, err)
	var want strings.Builder
	for i := range 10 {
		lines := strings.Repeat(fmt.Sprintf("%d\n", i), 5_000)
		want.WriteString(lines)
		require.NoError(t, q.Put([]byte(lines), 5_000))
	}
	require.Eventually(t, func() bool { return q.Stats().Retries > 3 }, patience, time.Millisecond)
	assert.ErrorIs(t, q.Stats().Failing, syscall.ENOSPC)
	got := strings.Join(readFiles(t, dir), "")
	assert.True(t, strings.HasPrefix(want.String(), got))
	assert.Zero(t, len(got)%10_000, "whole batches")
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=1m"))
	require.NoError(t, closeIn(t, q, patience))
	assert.Equal(t, want.String(), strings.Join(readFiles(t, dir), ""))
}

// A file that cannot even be cut back is left alone.
func TestAFileThatCannotBeCutIsFollowedByANewOne(t *testing.T) {
	dir := t.TempDir()
	f, err := NewFile(FileConfig{Dir: dir})
	require.NoError(t, err)
	torn, err := os.Open(f.file.Name()) // for reading
	require.NoError(t, err)
	require.NoError(t, f.file.Close())
	f.file = torn
	assert.ErrorIs(t, f.takeBack(1, syscall.ENOSPC), syscall.ENOSPC)
	require.NoError(t, f.Store(context.Background(), &Batch{Lines: []byte("a\n")}))
	require.NoError(t, f.Close())
	assert.Equal(t, []string{"", "a\n"}, readFiles(t, dir))
}

func TestAFileThatIsRemovedIsFollowedByANewOne(t *testing.T) {
	for name, change := range map[string]func(string) error{
		"removed": os.Remove,
		"renamed": func(name string) error { return os.Rename(name, name+".1") },
		"replaced": func(name string) error {
			return errors.Join(os.Remove(name), os.WriteFile(name, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := NewFile(FileConfig{Dir: t.TempDir(), Sync: SyncAlways})
			require.NoError(t, err)
			require.NoError(t, f.Store(context.Background(), &Batch{Lines: []byte("a\n")}))
			require.NoError(t, change(f.file.Name()))
			require.NoError(t, f.Store(context.Background(), &Batch{Lines: []byte("b\n")}))
			require.NoError(t, f.Store(context.Background(), &Batch{Lines: []byte("c\n")}))
			require.NoError(t, f.Close())
			got := readFiles(t, f.cfg.Dir)
			require.NotEmpty(t, got)
			assert.Equal(t, "b\nc\n", got[len(got)-1])
		})
	}
}

// A directory that is removed is a sink that fails, until it is there again.
func TestARemovedDirectoryIsSaid(t *testing.T) {
	dir := t.TempDir() + "/sink"
	f, err := NewFile(FileConfig{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, f.Store(context.Background(), &Batch{Lines: []byte("a\n")}))
	require.NoError(t, os.RemoveAll(dir))
	f.looked = time.Time{} // a second later
	for range 2 {
		assert.ErrorIs(t, f.Store(context.Background(), &Batch{Lines: []byte("b\n")}), os.ErrNotExist)
	}
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, f.Store(context.Background(), &Batch{Lines: []byte("b\n")}))
	require.NoError(t, f.Close())
	assert.Equal(t, []string{"b\n"}, readFiles(t, dir))
}

func TestMessagesAreWholeLines(t *testing.T) {
	var got []string
	offset := 0
	for _, m := range divide(nil, []byte("ab\ncd\nefghijkl\nm\no\n\n"), 0, 6) {
		assert.Equal(t, offset, m.offset)
		offset += len(m.lines)
		got = append(got, string(m.lines))
	}
	assert.Equal(t, []string{"ab\ncd\n", "efghijkl\n", "m\no\n\n"}, got)
	assert.Len(t, divide(nil, []byte("ab\n\nc\n"), 0, 1), 3)
}

func BenchmarkQueue(b *testing.B) {
	q, err := NewQueue(&nothing{}, Config{})
	require.NoError(b, err)
	line := []byte(strings.Repeat("x", 4095) + "\n")
	b.ReportAllocs()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		for q.Put(line, 1) != nil { // full
			time.Sleep(time.Millisecond)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(b, q.Close(ctx))
}

type nothing struct{}

func (*nothing) Store(context.Context, *Batch) error { return nil }
func (*nothing) Close() error                        { return nil }
