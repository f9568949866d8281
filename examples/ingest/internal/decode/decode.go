// Package decode makes JSON lines of the frames of telemetry protocols.
package decode

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// ErrMalformed is returned for a frame that does not follow its protocol.
var ErrMalformed = errors.New("decode: malformed")

var errText = malformed("text: not UTF-8")

const (
	// OverheadBytes is what a line has at most beside the bytes of its frame: the time and the client, the names of the
	// members, numbers written out, what is wrong with the frame. A frame may multiply its own bytes besides, up to
	// MultipleBytes for one: control characters need escapes, and tags quotes.
	OverheadBytes = 224
	// MultipleBytes is the most that one byte of a frame becomes.
	MultipleBytes = 8
	// reasonBytes is how much of the text of a library's error a line has.
	reasonBytes = 76
)

// A Decoder understands the frames of one protocol. Any goroutine may use it.
type Decoder interface {
	// Append appends the members of a JSON object, without braces, that tell what frame says. With an error, which
	// wraps ErrMalformed, what it has appended is worthless. frame is borrowed until return.
	Append(dst, frame []byte) ([]byte, error)
}

// A Line makes lines of the frames of one batch. It belongs to one goroutine.
type Line struct {
	// Unescaped leaves DEL, controls of C1 and those that change the direction of text as they are. By default they are
	// escapes, and a file of lines is safe to show on a terminal.
	Unescaped bool

	decoder Decoder
	head    []byte
}

// NewLine returns the Line of frames that arrived from a client at a time.
func NewLine(decoder Decoder, at time.Time, from string) Line {
	head := make([]byte, 0, 96)
	head = append(head, `{"at":"`...)
	head = at.UTC().AppendFormat(head, "2006-01-02T15:04:05.000Z")
	head = append(head, `","from":`...)
	head = AppendString(head, from)
	head = append(head, ',')
	return Line{decoder: decoder, head: head}
}

// Append appends the line of a frame, which it borrows until return, and reports whether the decoder understood it.
// Nothing is lost when it did not: then the line has the frame as it is, and what is wrong with it. What is not UTF-8
// is never understood, because JSON has no way to say it.
func (l *Line) Append(dst, frame []byte) ([]byte, bool) {
	dst = append(dst, l.head...)
	start := len(dst)
	text := utf8.Valid(frame)
	err := errText
	if text {
		dst, err = l.decoder.Append(dst, frame)
	}
	if err != nil {
		dst = append(dst[:start], `"error":`...)
		dst = AppendString(dst, err.Error())
		if text {
			dst = append(dst, `,"raw":`...)
			dst = AppendString(dst, string(frame))
		} else {
			dst = append(dst, `,"bytes":`...)
			dst = appendBase64(dst, frame)
		}
	}
	if !l.Unescaped {
		dst = escapeControls(dst, start)
	}
	return append(dst, '}', '\n'), err == nil
}

// malformed returns an error that says what is wrong without repeating what a client sent.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w %s", ErrMalformed, fmt.Sprintf(format, args...))
}
