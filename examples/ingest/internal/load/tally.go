package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Tally is which frames have arrived: of each connection, every sequence number and how often. It belongs to one
// goroutine.
type Tally struct {
	seen  map[uint64]map[uint64]int
	Lines int // that had a mark
	Twice int // frames that came again
}

// ReadFiles counts the lines of files that have marks; others, which "skip" returns true for, are passed over.
func (t *Tally) ReadFiles(names []string, skip func(line []byte) bool) error {
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if err := t.Add(lines.Bytes(), skip); err != nil {
				_ = file.Close()
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Add counts a line. A line that is not an object of JSON as a whole is torn.
func (t *Tally) Add(line []byte, skip func(line []byte) bool) error {
	if !bytes.HasPrefix(line, []byte(`{"at":"`)) || !bytes.HasSuffix(line, []byte("}")) {
		return fmt.Errorf("%w: torn line %.200q", ErrMark, line)
	}
	if skip != nil && skip(line) {
		return nil
	}
	connection, sequence, err := Mark(line)
	if err != nil {
		return err
	}
	if t.seen == nil {
		t.seen = map[uint64]map[uint64]int{}
	}
	if t.seen[connection] == nil {
		t.seen[connection] = map[uint64]int{}
	}
	t.Lines++
	if t.seen[connection][sequence]++; t.seen[connection][sequence] > 1 {
		t.Twice++
	}
	return nil
}

// Connections lists the connections of which something has arrived.
func (t *Tally) Connections() []uint64 {
	all := make([]uint64, 0, len(t.seen))
	for c := range t.seen {
		all = append(all, c)
	}
	slices.Sort(all)
	return all
}

// Count is how many different frames of a connection have arrived.
func (t *Tally) Count(connection uint64) int { return len(t.seen[connection]) }

// Missing lists up to ten of the first n frames of a connection that have not arrived.
func (t *Tally) Missing(connection, n uint64) (missing []uint64) {
	for s := uint64(0); s < n && len(missing) < 10; s++ {
		if t.seen[connection][s] == 0 {
			missing = append(missing, s)
		}
	}
	return missing
}
