//go:build linux

package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
)

// faultRole names the environment variable that makes the test binary one of the scenarios below.
const faultRole = "SINK_TEST_FAULT"

func TestMain(m *testing.M) {
	if name := os.Getenv(faultRole); name != "" {
		if err := failToFlush(name, os.Args[1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func newFile(t *testing.T, cfg FileConfig) *File {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	f, err := NewFile(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func storeLines(f *File, lines string) error {
	return f.Store(context.Background(), &Batch{Lines: []byte(lines)})
}

// The clock may have been wrong: what counts is the sequence. What the sink has not made stays.
func TestFilesAreKeptByTheirSequence(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"ingest-0000000007-29991231T000000Z.jsonl", "ingest-0000000009-29991231T000000Z.jsonl",
		"ingest-0000000008-19700101T000000Z.jsonl", "ingest-29991231T051629.062658-000001.jsonl", "ingest-notes.jsonl",
		"ingest-0000000001-29991231T000000Z.jsonl.gz",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o644))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "ingest-0000000002-20200101T000000Z.jsonl"), 0o755))
	f := newFile(t, FileConfig{Dir: dir, MaxBytes: 1, Keep: 2})
	require.NoError(t, storeLines(f, "a\n"))
	assert.Equal(t, []string{"ingest-0000000009-29991231T000000Z.jsonl\n", "a\n"}, readFiles(t, dir))
	require.NoError(t, storeLines(f, "b\n"))
	require.NoError(t, storeLines(f, "c\n"))
	assert.Equal(t, []string{"b\n", "c\n"}, readFiles(t, dir))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2+4+1, "and the lock")
}

func TestAFolderHasOneWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sink")
	f := newFile(t, FileConfig{Dir: dir})
	_, err := NewFile(FileConfig{Dir: dir})
	require.ErrorIs(t, err, ErrLocked)
	assert.ErrorContains(t, err, dir)
	require.NoError(t, storeLines(f, "a\n"))
	// Another directory of that name is another's when they were there first.
	require.NoError(t, os.RemoveAll(dir))
	other := newFile(t, FileConfig{Dir: dir})
	f.looked = time.Time{} // a second later
	assert.ErrorIs(t, storeLines(f, "b\n"), ErrLocked)
	require.NoError(t, other.Close())
	require.NoError(t, storeLines(f, "b\n"))
	require.NoError(t, f.Close())
	require.NoError(t, newFile(t, FileConfig{Dir: dir}).Close())
}

// logrotate's copytruncate empties the file, and the next write finds a full disk: what is there afterwards is whole
// lines, once each.
func TestAWriteThatFailsInAFileThatWasCutLeavesWholeLines(t *testing.T) {
	dir := t.TempDir()
	testenv.Require(t, "mount", syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	f := newFile(t, FileConfig{Dir: dir})
	require.NoError(t, storeLines(f, strings.Repeat("a\n", 10_000)))
	require.NoError(t, os.Truncate(f.file.Name(), 0))
	filler := filepath.Join(dir, "filler")
	require.NoError(t, os.WriteFile(filler, make([]byte, 32<<10), 0o600))
	want := strings.Repeat("b\n", 30_000)
	assert.ErrorIs(t, storeLines(f, want), syscall.ENOSPC)
	assert.Equal(t, []string{""}, readFiles(t, dir))
	require.NoError(t, os.Remove(filler))
	require.NoError(t, storeLines(f, want))
	require.NoError(t, f.Close())
	assert.Equal(t, want, strings.Join(readFiles(t, dir), ""))
}

// What logrotate's copytruncate does: the copy has what came before, the file what comes then.
func TestAFileThatIsCopiedAndCutGoesOn(t *testing.T) {
	dir := t.TempDir()
	f := newFile(t, FileConfig{Dir: dir, MaxBytes: 6, Sync: SyncAlways})
	require.NoError(t, storeLines(f, "a\nb\n"))
	require.NoError(t, os.Truncate(f.file.Name(), 0))
	require.NoError(t, storeLines(f, "c\nd\n"))
	assert.Equal(t, []string{"c\nd\n"}, readFiles(t, dir), "no hole, and what was cut does not count")
}

func TestATornLineIsSetAside(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for content, want := range map[string][2]string{
		"":                  {"", ""},
		"a\n":               {"a\n", ""},
		"a\nb":              {"a\n", "b"},
		"b":                 {"", "b"},
		"a\n" + long:        {"a\n", long},
		long:                {"", long},
		long + "\n\x00\x00": {long + "\n", "\x00\x00"},
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, nameOf(4, time.Unix(0, 0)))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
		f := newFile(t, FileConfig{Dir: dir})
		require.NoError(t, storeLines(f, "new\n"))
		require.NoError(t, f.Close())
		assert.Equal(t, []string{want[0], "new\n"}, readFiles(t, dir))
		torn, err := os.ReadFile(name + tornSuffix)
		assert.Equal(t, want[1], string(torn))
		assert.Equal(t, want[1] == "", errors.Is(err, os.ErrNotExist))
	}
}

// A limit on the size of files divides a batch, and rejects a line that is longer than a file may be.
func TestAFileThatCannotGrowIsFollowedByANewOne(t *testing.T) {
	const limit, limited = 4096, "SINK_TEST_LIMITED"
	if os.Getenv(limited) == "" { // in a process of its own: go test writes files, too
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), limited+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}))
	for _, n := range []int64{limit - 1, limit, limit + 1} {
		f, err := NewFile(FileConfig{Dir: t.TempDir(), MaxBytes: n})
		if n > limit {
			assert.ErrorIs(t, err, ErrConfig)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	for _, n := range []int{limit - 1, limit, limit + 1} {
		dir := t.TempDir()
		f := newFile(t, FileConfig{Dir: dir, MaxBytes: limit})
		long := strings.Repeat("x", n-1) + "\n"
		lines := strings.Repeat("a\n", limit) + long + strings.Repeat("b\n", limit)
		err := storeLines(f, lines)
		var rejected *RejectedError
		if n > limit {
			require.ErrorAs(t, err, &rejected)
			require.ErrorIs(t, err, syscall.EFBIG)
			assert.Equal(t, long, string(rejected.Lines))
			assert.Equal(t, 1, rejected.Records)
			lines = strings.Replace(lines, long, "", 1)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, storeLines(f, "c\n"))
		require.NoError(t, f.Close())
		assert.Equal(t, lines+"c\n", strings.Join(readFiles(t, dir), ""))
	}
}

func TestReopenBeginsANewFile(t *testing.T) {
	f := newFile(t, FileConfig{Dir: t.TempDir()})
	require.NoError(t, storeLines(f, "a\n"))
	f.Reopen()
	require.NoError(t, storeLines(f, "b\n"))
	require.NoError(t, storeLines(f, "c\n"))
	require.NoError(t, f.Close())
	assert.Equal(t, []string{"a\n", "b\nc\n"}, readFiles(t, f.cfg.Dir))
}

// What the last batches leave is flushed although nothing comes, and a file that somebody wants to have is left.
func TestAnIdleFileIsFlushed(t *testing.T) {
	f := newFile(t, FileConfig{Dir: t.TempDir()})
	q, err := NewQueue(f, quiet(Config{IdleAfter: time.Millisecond}))
	require.NoError(t, err)
	require.NoError(t, q.Put([]byte("a\n"), 1))
	require.Eventually(t, func() bool { return q.Stats().DeliveredRecords == 1 }, patience, time.Millisecond)
	f.Reopen()
	left := func() bool {
		open, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, fd := range open {
			if name, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(name, f.cfg.Dir) &&
				strings.HasSuffix(name, ".jsonl") {
				return false
			}
		}
		return true
	}
	require.Eventually(t, left, patience, time.Millisecond)
	require.NoError(t, q.Put([]byte("b\n"), 1))
	require.NoError(t, closeIn(t, q, patience))
	assert.Equal(t, []string{"a\n", "b\n"}, readFiles(t, f.cfg.Dir))
	f = newFile(t, FileConfig{Dir: t.TempDir()})
	require.NoError(t, storeLines(f, "a\n"))
	assert.True(t, f.dirty)
	require.NoError(t, f.Idle())
	assert.False(t, f.dirty)
}

// failToFlush stores lines while fsync fails once, in a process of its own that is traced. Faults are counted by
// thread.
func failToFlush(name, dir string) error {
	runtime.LockOSThread()
	f, err := NewFile(FileConfig{Dir: dir, Sync: Sync(name), MaxBytes: 6})
	if err != nil {
		return err
	}
	if err := storeLines(f, "a\n"); err != nil {
		return err
	}
	next := "b\n"
	if f.cfg.Sync == SyncInterval {
		next = "longer\n" // begins a new file
	}
	if err := storeLines(f, next); !errors.Is(err, syscall.EIO) {
		return fmt.Errorf("want an error of the disk, not %w", err)
	}
	if err := storeLines(f, next); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	return f.Close()
}

// A failed fsync is an error once, since the next one of the same file would say yes whatever is on the disk. What
// follows is in a new file.
func TestAFailedFlushIsFollowedByANewFile(t *testing.T) {
	strace, err := exec.LookPath("strace")
	testenv.Require(t, "strace", err)
	for _, c := range []struct {
		sync Sync
		when int // the directory is flushed, too, with SyncAlways
		want []string
	}{{SyncAlways, 3, []string{"a\n", "b\n"}}, {SyncInterval, 1, []string{"a\n", "longer\n"}}} {
		t.Run(string(c.sync), func(t *testing.T) {
			dir := t.TempDir()
			inject := fmt.Sprintf("inject=fsync:error=EIO:when=%d", c.when)
			cmd := exec.Command(strace, "-f", "-e", "trace=fsync", "-e", inject, "-o",
				filepath.Join(t.TempDir(), "trace"),
				os.Args[0], dir)
			cmd.Env = append(os.Environ(), faultRole+"="+string(c.sync))
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "ptrace") || strings.Contains(string(out), "PTRACE") {
				testenv.Require(t, "ptrace", err)
			}
			require.NoError(t, err, "%s", out)
			assert.Equal(t, c.want, readFiles(t, dir))
		})
	}
}
