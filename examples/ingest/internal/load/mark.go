// Package load makes telemetry that can be checked at the other end: each frame has a mark with the number of its
// connection, a sequence number and a checksum.
package load

import (
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"
)

// ErrMark is returned for a line without a mark, or with one that is not intact.
var ErrMark = errors.New("load: bad mark")

var markPattern = regexp.MustCompile(`c(\d+)\.s(\d+)\.k([0-9a-f]{8})\.([a-z]*)`)

// AppendMark appends the mark of a frame: "c3.s17.k1a2b3c4d.padding", the checksum being of all but itself.
func AppendMark(dst []byte, connection, sequence uint64, padding string) []byte {
	start := len(dst)
	dst = append(dst, 'c')
	dst = strconv.AppendUint(dst, connection, 10)
	dst = append(dst, '.', 's')
	dst = strconv.AppendUint(dst, sequence, 10)
	sum := crc32.Update(crc32.ChecksumIEEE(dst[start:]), crc32.IEEETable, []byte(padding))
	const digits = "0123456789abcdef"
	dst = append(dst, '.', 'k')
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[sum>>shift&0xf])
	}
	dst = append(dst, '.')
	return append(dst, padding...)
}

// Mark returns the numbers in the mark of a line. The error wraps ErrMark.
func Mark(line []byte) (connection, sequence uint64, err error) {
	m := markPattern.FindSubmatch(line)
	if m == nil {
		return 0, 0, fmt.Errorf("%w: none in %.200q", ErrMark, line)
	}
	connection, err1 := strconv.ParseUint(string(m[1]), 10, 64)
	sequence, err2 := strconv.ParseUint(string(m[2]), 10, 64)
	if err1 != nil || err2 != nil || string(AppendMark(nil, connection, sequence, string(m[4]))) != string(m[0]) {
		return 0, 0, fmt.Errorf("%w: not intact in %.200q", ErrMark, line)
	}
	return connection, sequence, nil
}
