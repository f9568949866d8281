package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrNoRing is returned for a descriptor that is not an io_uring's.
var ErrNoRing = errors.New("not an io_uring")

// maxLine is how long a line of fdinfo may be: the path of a registered file is the longest.
const maxLine = 64 << 10

// Ring is what the kernel says of one ring in /proc/PID/fdinfo/FD.
type Ring struct {
	FD int
	// Queues reports whether the kernel showed the queues. It does not before Linux 5.18, nor while the ring is locked.
	Queues bool
	SQ, CQ Queue
	// Overflow is how many completions wait in the kernel because the completion queue was full.
	Overflow int
	// Polls is how many requests wait for a file to become ready.
	Polls          int
	Files, Buffers int
	// Poller is the thread that polls the submission queue (IORING_SETUP_SQPOLL), -1 without one.
	Poller int

	inode  string // which ring it is: a descriptor may be another's by now
	locked bool   // somebody held the ring's lock, and the kernel showed nothing
}

// Queue is one of the two queues. Head and Tail count entries since the ring was made and wrap around.
type Queue struct{ Entries, Head, Tail uint32 }

// Used is how many entries are waiting to be consumed.
func (q Queue) Used() uint32 { return q.Tail - q.Head }

// ParseRing parses an fdinfo file. Fields that this kernel does not print stay zero. The file is read line by line,
// since it has a line for each entry, registered file and waiting completion.
func ParseRing(r io.Reader) (Ring, error) {
	ring := Ring{Poller: -1}
	seen := map[string]bool{}
	section, read := "", false
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := lines.Text()
		read = read || line != ""
		key, value, isField := field(line)
		if !isField {
			ring.item(section)
			continue
		}
		section = key
		if err := ring.set(key, value, seen); err != nil {
			return Ring{}, err
		}
	}
	if err := lines.Err(); err != nil {
		return Ring{}, fmt.Errorf("fdinfo: %w", err)
	}
	if !read {
		return Ring{}, fmt.Errorf("fdinfo: empty: %w", io.ErrUnexpectedEOF)
	}
	ring.locked = !seen["SqThread"]
	ring.Queues = seen["SqMask"] && seen["SqHead"] && seen["SqTail"] && seen["CqMask"] && seen["CqHead"] && seen["CqTail"]
	return ring, nil
}

// field splits a line "Key: value". Entries of a list are indented, or begin with their number.
func field(line string) (key, value string, ok bool) {
	if line == "" || line[0] == ' ' || line[0] == '\t' || line[0] >= '0' && line[0] <= '9' {
		return "", "", false
	}
	key, value, ok = strings.Cut(line, ":")
	return key, strings.TrimSpace(value), ok
}

func (r *Ring) item(section string) {
	switch section {
	case "PollList":
		r.Polls++
	case "CqOverflowList":
		r.Overflow++
	}
}

func (r *Ring) set(key, value string, seen map[string]bool) error {
	count := func(to *uint32, plus uint32) error {
		n, err := strconv.ParseUint(value, 0, 32)
		if err != nil {
			return fmt.Errorf("fdinfo: %s: %w", key, err)
		}
		*to, seen[key] = uint32(n)+plus, true
		return nil
	}
	number := func(to *int) (err error) {
		if *to, err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("fdinfo: %s: %w", key, err)
		}
		return nil
	}
	switch key {
	case "ino":
		r.inode = value
	case "SqMask":
		return count(&r.SQ.Entries, 1)
	case "SqHead":
		return count(&r.SQ.Head, 0)
	case "SqTail":
		return count(&r.SQ.Tail, 0)
	case "CqMask":
		return count(&r.CQ.Entries, 1)
	case "CqHead":
		return count(&r.CQ.Head, 0)
	case "CqTail":
		return count(&r.CQ.Tail, 0)
	case "SqThread":
		seen[key] = true
		return number(&r.Poller)
	case "UserFiles":
		return number(&r.Files)
	case "UserBufs":
		return number(&r.Buffers)
	}
	return nil
}
