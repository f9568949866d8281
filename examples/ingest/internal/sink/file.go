package sink

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Sync says when a File's lines are flushed to the disk (fsync(2)).
type Sync string

// The policies.
const (
	// SyncAlways flushes each batch before it counts as delivered: it survives a power failure.
	SyncAlways Sync = "always"
	// SyncInterval flushes once a second. Delivered is what the kernel has: it survives the end of the process.
	SyncInterval Sync = "interval"
	// SyncNever leaves it to the kernel.
	SyncNever Sync = "never"
)

const syncEvery = time.Second

// FileConfig configures a File.
type FileConfig struct {
	// Dir is where the files are; it is made when it is not there.
	Dir string
	// MaxBytes is the size at which a new file is begun; a batch is not divided for it. Zero means 64 MiB.
	MaxBytes int64
	// Keep is how many files to keep, of those that a File has made; older ones are removed. Zero means all.
	Keep int
	// Sync is when to flush. Empty means SyncInterval.
	Sync Sync
	// Logger gets a line for each torn line that is found at the start. Nil means slog.Default.
	Logger *slog.Logger
}

// File is a Store of rolling files of JSON lines, numbered in the order in which they were made. It is the only one
// that writes to its folder. It is not made of a rolling logger such as lumberjack, since those have neither fsync nor
// a way back from a write that the disk took in part: a File takes back what it has of such a batch, so that no line is
// torn and none is there twice.
type File struct {
	cfg      FileConfig
	lock     *flock.Flock
	file     *os.File
	size     int64 // of whole batches
	dirty    bool  // not flushed
	synced   time.Time
	looked   time.Time // at its name
	sequence uint64    // of the last file
	reopen   atomic.Bool

	pieceBytes int    // what is written at a time: less than a batch after the system has refused one for its size
	batch      uint64 // of what follows
	done       int    // bytes of it that are written or rejected
	rejected   RejectedError
}

var (
	_ Store = (*File)(nil)
	_ Idler = (*File)(nil)
)

// NewFile makes the directory, locks it, repairs what a process that died has left and opens a file. Errors wrap
// ErrConfig or ErrLocked or are the system's.
func NewFile(cfg FileConfig) (*File, error) {
	cfg.Sync, cfg.MaxBytes = cmp.Or(cfg.Sync, SyncInterval), cmp.Or(cfg.MaxBytes, 64<<20)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	switch limit := maxFileBytes(); {
	case cfg.Sync != SyncAlways && cfg.Sync != SyncInterval && cfg.Sync != SyncNever:
		return nil, fmt.Errorf("%w: Sync %q", ErrConfig, cfg.Sync)
	case cfg.MaxBytes < 0 || cfg.Keep < 0 || cfg.Dir == "":
		return nil, fmt.Errorf("%w: MaxBytes %d, Keep %d, Dir %q", ErrConfig, cfg.MaxBytes, cfg.Keep, cfg.Dir)
	case uint64(cfg.MaxBytes) > limit:
		return nil, fmt.Errorf("%w: files of %d bytes, and this process may write %d (RLIMIT_FSIZE, ulimit -f)",
			ErrConfig, cfg.MaxBytes, limit)
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	f := &File{cfg: cfg, pieceBytes: int(^uint(0) >> 1)}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Reopen makes it leave its file, within a second, and begin a new one with the next batch. Any goroutine may call it.
func (f *File) Reopen() { f.reopen.Store(true) }

// Store appends b to the present file or a new one.
func (f *File) Store(_ context.Context, b *Batch) error {
	if f.batch != b.Number {
		f.batch, f.done, f.rejected = b.Number, 0, RejectedError{}
	}
	for f.done < len(b.Lines) {
		piece := wholeLines(b.Lines[f.done:], f.pieceBytes)
		err := f.store(piece)
		switch {
		case err == nil:
		case !errors.Is(err, syscall.EFBIG):
			return err
		case f.size > 0: // the file is full, not the line too long
			if err := f.finish(); err != nil {
				return err
			}
			continue
		case bytes.Count(piece, []byte{'\n'}) > 1:
			f.pieceBytes = len(piece) / 2
			continue
		default:
			f.rejected.add(piece, err)
		}
		f.done += len(piece)
	}
	rejected := f.rejected
	f.done, f.rejected = 0, RejectedError{}
	return (&rejected).orNil()
}

// store appends whole lines. After an error the files have nothing of them.
func (f *File) store(lines []byte) error {
	if f.file != nil && (f.reopen.Load() || f.gone() || f.size > 0 && f.size+int64(len(lines)) > f.cfg.MaxBytes) {
		if err := f.finish(); err != nil {
			return err
		}
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	n, err := f.file.Write(lines)
	if err != nil {
		return f.takeBack(n, err)
	}
	f.dirty = true
	if f.cfg.Sync == SyncAlways || f.cfg.Sync == SyncInterval && time.Since(f.synced) >= syncEvery {
		if err := f.file.Sync(); err != nil {
			return errors.Join(f.takeBack(n, err), f.abandon())
		}
		f.dirty, f.synced = false, time.Now()
	}
	f.size += int64(n)
	return nil
}

// Idle flushes what the last batches have left, and leaves a file that somebody wants to have or has removed.
func (f *File) Idle() error {
	switch {
	case f.file == nil:
		return nil
	case f.reopen.Load() || f.gone():
		return f.finish()
	case f.dirty && f.cfg.Sync == SyncInterval:
		if err := f.file.Sync(); err != nil {
			return errors.Join(err, f.abandon())
		}
		f.dirty, f.synced = false, time.Now()
	}
	return nil
}

// Close flushes and closes the file, and lets others have the folder.
func (f *File) Close() (err error) {
	if f.file != nil {
		err = f.finish()
	}
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// gone looks once a second, or with SyncAlways each time, whether the file still has its name. Who removes a file, or
// the directory, would otherwise get what follows in one that nobody sees.
func (f *File) gone() bool {
	if f.cfg.Sync != SyncAlways && time.Since(f.looked) < syncEvery {
		return false
	}
	f.looked = time.Now()
	named, err := os.Stat(f.file.Name())
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	open, err := f.file.Stat()
	if err != nil {
		return false
	}
	f.size = open.Size() // somebody may have cut it, as logrotate's copytruncate does
	return !os.SameFile(named, open)
}

// takeBack removes the last n bytes of the file, which it has of lines that failed. They are counted from its end: it
// may have been cut meanwhile. Where that fails, too, the next try is in a new file.
func (f *File) takeBack(n int, err error) error {
	info, undo := f.file.Stat()
	if undo == nil && n > 0 {
		undo = f.file.Truncate(max(info.Size()-int64(n), 0))
	}
	if undo != nil {
		return errors.Join(err, undo, f.abandon())
	}
	return err
}

// finish closes the file for good. A failed fsync says nothing about what is on the disk, and the next one would say
// yes (fsync(2), NOTES): it is an error once, and what follows is in a new file.
func (f *File) finish() error {
	var err error
	if f.dirty && f.cfg.Sync != SyncNever {
		err = f.file.Sync()
	}
	return errors.Join(err, f.abandon())
}

// abandon closes the file as it is.
func (f *File) abandon() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// open begins a new file.
func (f *File) open() error {
	if err := f.hold(); err != nil {
		return err
	}
	f.sequence++
	name := filepath.Join(f.cfg.Dir, nameOf(f.sequence, time.Now()))
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if f.cfg.Sync == SyncAlways {
		if err := syncDir(f.cfg.Dir); err != nil {
			return errors.Join(err, file.Close(), os.Remove(name))
		}
	}
	f.file, f.size, f.dirty, f.synced, f.looked = file, 0, false, time.Now(), time.Now()
	f.reopen.Store(false)
	return f.prune()
}

// hold locks the folder, again when it is another one of the same name, and looks at the files that are there.
func (f *File) hold() error {
	if f.lock != nil {
		held, err := f.lock.Stat()
		named, gone := os.Stat(f.lock.Path())
		if err == nil && gone == nil && os.SameFile(held, named) {
			return nil
		}
	}
	lock, err := lockFolder(f.cfg.Dir)
	if err != nil {
		return err
	}
	if f.lock != nil {
		_ = f.lock.Close()
	}
	f.lock = lock
	names, err := Files(f.cfg.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		torn, err := repair(name)
		if err != nil {
			return err
		}
		if torn > 0 {
			f.cfg.Logger.Warn("a torn line was set aside", "file", name+tornSuffix, "bytes", torn)
		}
		last, _ := sequenceOf(name)
		f.sequence = max(f.sequence, last)
	}
	return nil
}

// prune removes the oldest files beyond those to keep. The present one is the last of the sequence.
func (f *File) prune() error {
	if f.cfg.Keep == 0 {
		return nil
	}
	names, err := Files(f.cfg.Dir)
	if err != nil {
		return err
	}
	for len(names) > f.cfg.Keep && names[0] != f.file.Name() {
		if err := os.Remove(names[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		names = names[1:]
	}
	return nil
}

// wholeLines returns as many lines from the front as fit in most bytes, and at least one.
func wholeLines(lines []byte, most int) []byte {
	if len(lines) <= most {
		return lines
	}
	if last := bytes.LastIndexByte(lines[:most], '\n'); last >= 0 {
		return lines[:last+1]
	}
	return lines[:most+bytes.IndexByte(lines[most:], '\n')+1]
}
