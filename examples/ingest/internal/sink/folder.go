package sink

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/gofrs/flock"
)

// ErrLocked is returned for a folder into which another File writes.
var ErrLocked = errors.New("sink: the folder has another writer")

const (
	lockName   = "ingest.lock"
	tornSuffix = ".torn"
)

// A file's name begins with its place in the sequence of its folder, which is what counts; the time is for people. What
// has no such name is not ours.
var fileName = regexp.MustCompile(`^ingest-(\d{10,18})-\d{8}T\d{6}Z\.jsonl$`)

func nameOf(sequence uint64, at time.Time) string {
	return fmt.Sprintf("ingest-%010d-%s.jsonl", sequence, at.UTC().Format("20060102T150405Z"))
}

// sequenceOf returns a file's place in the sequence; false when it is not ours.
func sequenceOf(path string) (uint64, bool) {
	m := fileName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	return n, err == nil
}

// Files lists the files that a File has made in a directory, oldest first.
func Files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, ours := sequenceOf(e.Name()); ours && e.Type().IsRegular() {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		m, _ := sequenceOf(a)
		n, _ := sequenceOf(b)
		return cmp.Compare(m, n)
	})
	return names, nil
}

// lockFolder makes dir this process's until the lock is closed. The kernel takes it back when the process dies.
func lockFolder(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockName))
	switch ok, err := lock.TryLock(); {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
	}
	return lock, nil
}

// repair cuts a torn last line off a file, which a process leaves that dies while it writes, and sets it aside in a
// file of its own. It returns how many bytes that were.
func repair(name string) (torn int64, err error) {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	whole, err := endOfLines(file, size)
	if err != nil || whole == size {
		return 0, err
	}
	aside, err := os.Create(name + tornSuffix)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(aside, io.NewSectionReader(file, whole, size-whole))
	if err := errors.Join(err, aside.Sync(), aside.Close()); err != nil {
		return 0, err
	}
	return size - whole, file.Truncate(whole)
}

// endOfLines returns the offset behind the last LF in the first size bytes.
func endOfLines(r io.ReaderAt, size int64) (int64, error) {
	var block [4096]byte
	for end := size; end > 0; {
		start := max(0, end-int64(len(block)))
		part := block[:end-start]
		if _, err := r.ReadAt(part, start); err != nil {
			return 0, err
		}
		for i := len(part) - 1; i >= 0; i-- {
			if part[i] == '\n' {
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	return 0, nil
}

// syncDir makes a new file's name durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
