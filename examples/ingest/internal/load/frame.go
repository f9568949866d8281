package load

import (
	"encoding/binary"
	"strconv"
)

// A Format appends a frame around a mark.
type Format func(dst, mark []byte) []byte

// SyslogCounted is a message of RFC 5424 behind its length (RFC 6587, 3.4.1).
func SyslogCounted(dst, mark []byte) []byte {
	const head = "<14>1 2026-01-02T03:04:05.678Z host app 42 - - "
	dst = strconv.AppendInt(dst, int64(len(head)+len(mark)), 10)
	dst = append(dst, ' ')
	dst = append(dst, head...)
	return append(dst, mark...)
}

// SyslogLine is a message of RFC 3164 with LF at its end (RFC 6587, 3.4.2).
func SyslogLine(dst, mark []byte) []byte {
	dst = append(dst, "<14>Jan  2 03:04:05 host app[42]: "...)
	dst = append(dst, mark...)
	return append(dst, '\n')
}

// Graphite is a line of Carbon's plaintext protocol.
func Graphite(dst, mark []byte) []byte {
	dst = append(dst, "load."...)
	dst = append(dst, mark...)
	return append(dst, " 12.5 1767323045\n"...)
}

// Statsd is a counter.
func Statsd(dst, mark []byte) []byte {
	dst = append(dst, mark...)
	return append(dst, ":1|c\n"...)
}

// JSON is an object behind its length in four bytes.
func JSON(dst, mark []byte) []byte {
	const head, tail = `{"value":12.5,"name":"`, `"}`
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(head)+len(mark)+len(tail)))
	dst = append(dst, head...)
	dst = append(dst, mark...)
	return append(dst, tail...)
}
