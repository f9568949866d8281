// Package frame is the framing of the bench: a length field of four bytes, big endian, then so many bytes of payload.
package frame

import (
	"encoding/binary"
	"errors"
)

const (
	// HeaderBytes is the size of the length field.
	HeaderBytes = 4
	// MaxPayloadBytes is the longest payload; a longer one ends the connection.
	MaxPayloadBytes = 1 << 20
)

// ErrTooLong is the error of a length field above MaxPayloadBytes.
var ErrTooLong = errors.New("frame: payload too long")

// Length returns the length of the payload of the frame that in begins with, and whether all of that frame is there.
func Length(in []byte) (payload int, whole bool, err error) {
	if len(in) < HeaderBytes {
		return 0, false, nil
	}
	n := binary.BigEndian.Uint32(in)
	if n > MaxPayloadBytes {
		return 0, false, ErrTooLong
	}
	return int(n), len(in)-HeaderBytes >= int(n), nil
}

// Append appends a frame to dst.
func Append(dst, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}

// AppendReplies decodes the whole frames at the front of in and appends a frame with the same payload to dst for each.
// It returns how many bytes of in it took. It is the application of the frames mode, for peers that see their input as
// one slice.
func AppendReplies(dst, in []byte) (out []byte, taken int, err error) {
	for {
		n, whole, err := Length(in[taken:])
		if err != nil || !whole {
			return dst, taken, err
		}
		payload := in[taken+HeaderBytes : taken+HeaderBytes+n]
		dst = Append(dst, payload)
		taken += HeaderBytes + n
	}
}
