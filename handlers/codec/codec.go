// Package codec holds what all decoders and encoders share.
package codec

import "errors"

// ErrShort answers a Decode whose input ends before the message does. It is not a failure.
var ErrShort = errors.New("codec: message is incomplete")

// A Decoder takes messages from the front of a byte stream. It belongs to one channel's loop and may keep state between
// calls.
type Decoder[M any] interface {
	// Decode borrows in until return. It answers the first message and the number of bytes it took, n > 0; m may alias in
	// and the decoder's own memory, and is valid until the caller has used it and before the next call. With ErrShort
	// nothing is taken (n is 0), and in of the next call begins with the same bytes, so that a decoder may remember how
	// far it has looked. Every other error is final: the stream cannot be understood from here on.
	Decode(in []byte) (m M, n int, err error)
}
