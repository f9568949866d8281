package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Sync says when a File's lines are flushed to the disk (fsync(2)).
type Sync string

// The policies.
const (
	// SyncAlways flushes each batch before it counts as delivered: it survives a power failure.
	SyncAlways Sync = "always"
	// SyncInterval flushes at most once a second. Delivered is what the kernel has: it survives the end of the process.
	SyncInterval Sync = "interval"
	// SyncNever leaves it to the kernel.
	SyncNever Sync = "never"
)

const (
	syncEvery  = time.Second
	filePrefix = "ingest-"
	fileSuffix = ".jsonl"
)

// FileConfig configures a File.
type FileConfig struct {
	// Dir is where the files are; it is made when it is not there.
	Dir string
	// MaxBytes is the size at which a new file is begun; a batch is never divided. Zero means 64 MiB.
	MaxBytes int64
	// Keep is how many files to keep; older ones are removed. Zero means all.
	Keep int
	// Sync is when to flush. Empty means SyncInterval.
	Sync Sync
}

// File is a Store of rolling files of JSON lines, named so that their order is that of their names. It is not made of a
// rolling logger such as lumberjack, since those have neither fsync nor a way back from a write that the disk took in
// part: a File takes back what it has of such a batch, so that no line is torn and none is there twice.
type File struct {
	cfg    FileConfig
	file   *os.File
	size   int64 // of whole batches
	dirty  bool  // not flushed
	synced time.Time
	looked time.Time // at its name
	opened int
}

var _ Store = (*File)(nil)

// NewFile makes the directory and opens the first file. Errors wrap ErrConfig or are the system's.
func NewFile(cfg FileConfig) (*File, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 64 << 20
	}
	cfg.Sync = cmp.Or(cfg.Sync, SyncInterval)
	switch {
	case cfg.Sync != SyncAlways && cfg.Sync != SyncInterval && cfg.Sync != SyncNever:
		return nil, fmt.Errorf("%w: Sync %q", ErrConfig, cfg.Sync)
	case cfg.MaxBytes < 0 || cfg.Keep < 0 || cfg.Dir == "":
		return nil, fmt.Errorf("%w: MaxBytes %d, Keep %d, Dir %q", ErrConfig, cfg.MaxBytes, cfg.Keep, cfg.Dir)
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	f := &File{cfg: cfg}
	return f, f.open()
}

// Store appends b to the present file or a new one.
func (f *File) Store(_ context.Context, b *Batch) error {
	if f.file != nil && (f.gone() || f.size > 0 && f.size+int64(len(b.Lines)) > f.cfg.MaxBytes) {
		if err := f.finish(); err != nil {
			return err
		}
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if _, err := f.file.Write(b.Lines); err != nil {
		return f.takeBack(err)
	}
	f.dirty = true
	if f.cfg.Sync == SyncAlways || f.cfg.Sync == SyncInterval && time.Since(f.synced) >= syncEvery {
		if err := f.flush(); err != nil {
			return f.takeBack(err)
		}
	}
	f.size += int64(len(b.Lines))
	return nil
}

// Close flushes and closes the file.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return f.finish()
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
	return err == nil && !os.SameFile(named, open)
}

// takeBack removes what the file has of a batch that failed. Where that fails too, or after a failed fsync, which says
// nothing about what is on the disk (fsync(2), NOTES), the next try is in a new file.
func (f *File) takeBack(err error) error {
	if undo := f.file.Truncate(f.size); undo != nil {
		_ = f.file.Close()
		f.file = nil
		return errors.Join(err, undo)
	}
	return err
}

func (f *File) flush() error {
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.dirty, f.synced = false, time.Now()
	return nil
}

// finish closes the file for good.
func (f *File) finish() error {
	if f.dirty && f.cfg.Sync != SyncNever {
		if err := f.flush(); err != nil {
			return err
		}
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// open begins a new file.
func (f *File) open() error {
	f.opened++
	name := fmt.Sprintf("%s%s-%06d%s", filePrefix, time.Now().UTC().Format("20060102T150405.000000"), f.opened,
		fileSuffix)
	file, err := os.OpenFile(filepath.Join(f.cfg.Dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	f.file, f.size, f.dirty, f.synced, f.looked = file, 0, false, time.Now(), time.Now()
	if f.cfg.Sync == SyncAlways {
		if err := syncDir(f.cfg.Dir); err != nil {
			return err
		}
	}
	return f.prune()
}

// prune removes the oldest files beyond those to keep.
func (f *File) prune() error {
	if f.cfg.Keep == 0 {
		return nil
	}
	names, err := Files(f.cfg.Dir)
	if err != nil {
		return err
	}
	for len(names) > f.cfg.Keep {
		if err := os.Remove(names[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		names = names[1:]
	}
	return nil
}

// Files lists the files that a File has made in a directory, oldest first.
func Files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filePrefix) && strings.HasSuffix(e.Name(), fileSuffix) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(names)
	return names, nil
}

// syncDir makes a new file's name durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
