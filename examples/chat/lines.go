package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// maxLineBytes bounds a line, and so what a connection keeps of an unfinished one.
const maxLineBytes = 1024

var errLineTooLong = fmt.Errorf("a line has at most %d bytes", maxLineBytes)

// splitter cuts what is received into lines. It keeps the beginning of an unfinished one.
type splitter struct{ partial []byte }

// feed calls line for each line that p completes, without its end ("\n" or "\r\n"). line borrows its argument until
// return; its error ends the feed.
func (s *splitter) feed(p []byte, line func([]byte) error) error {
	for {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			break
		}
		if len(s.partial)+end > maxLineBytes {
			return errLineTooLong
		}
		whole := p[:end]
		if len(s.partial) > 0 {
			whole = append(s.partial, whole...)
			s.partial = nil
		}
		p = p[end+1:]
		if err := line(bytes.TrimSuffix(whole, []byte("\r"))); err != nil {
			return err
		}
	}
	if len(s.partial)+len(p) > maxLineBytes {
		return errLineTooLong
	}
	s.partial = append(s.partial, p...)
	return nil
}

// printable returns the line with everything that could steer a terminal replaced.
func printable(line []byte) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, string(line))
}
