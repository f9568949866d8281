package codec

import (
	"errors"
	"fmt"
)

// What a Decoder returns besides messages.
var (
	// ErrShort is the error of a Decode whose input ends before the message does. It is not a failure.
	ErrShort = errors.New("codec: message is incomplete")
	// ErrSkip is the error of a Decode that took bytes which make no message. It is not a failure.
	ErrSkip = errors.New("codec: bytes without a message")
)

// What handlers behind a decoder branch on.
var (
	// ErrFrameTooLong is in the chain of every TooLongError.
	ErrFrameTooLong = errors.New("codec: frame too long")
	// ErrBadFrame is in the chain of errors about bytes that are no frame of the format.
	ErrBadFrame = errors.New("codec: bad frame")
	// ErrTruncated says that the peer finished sending in the middle of a frame.
	ErrTruncated = errors.New("codec: stream ends inside a frame")
	// ErrOverrun says that a handler before the decoder went on delivering while reading was paused, or one behind it
	// delivered more from within than may wait.
	ErrOverrun = errors.New("codec: too much delivered while nothing may be decoded")
	// ErrDecoder says that a Decoder broke its contract: it took no bytes, or more than there were.
	ErrDecoder = errors.New("codec: decoder took an impossible number of bytes")
	// ErrConfig is the error of a configuration that makes no sense.
	ErrConfig = errors.New("codec: bad config")
	// ErrReused is the error of an addition to a pipeline of a handler that was added before: it remembers the bytes it
	// has seen.
	ErrReused = errors.New("codec: a handler is for one channel and once")
	// ErrEncode is the error of a message that a prepender cannot write: nothing of it was.
	ErrEncode = errors.New("codec: cannot encode")
)

// DefaultMaxBytes bounds a frame where a configuration says nothing else.
const DefaultMaxBytes = 1 << 20

// TooLongError says that a frame exceeds its limit.
type TooLongError struct {
	Bytes    int64 // how long it said it was; 0 where that is not known
	MaxBytes int
}

// Error implements error.
func (e *TooLongError) Error() string {
	if e.Bytes == 0 {
		return fmt.Sprintf("%v: more than %d bytes", ErrFrameTooLong, e.MaxBytes)
	}
	return fmt.Sprintf("%v: %d bytes of at most %d", ErrFrameTooLong, e.Bytes, e.MaxBytes)
}

// Unwrap makes errors.Is(err, ErrFrameTooLong) true.
func (e *TooLongError) Unwrap() error { return ErrFrameTooLong }

// A Decoder takes messages from the front of a byte stream. It belongs to one channel's loop and may keep state between
// calls.
type Decoder[M any] interface {
	// Decode borrows in, which is not empty, until return. It returns the first message and the number of bytes it took,
	// n > 0; m may alias in and the decoder's own memory, and is valid until the caller has used it and before the next
	// call. The next call's in begins behind what was taken and has at least the bytes that were there already.
	//
	// With ErrShort nothing is taken, and in of the next call begins with the same bytes and has more of them, so that a
	// decoder may remember how far it has looked. n is then how many bytes in must have before asking again makes sense,
	// or 0 where that is not known; with as many as the largest message has, it is asked in any case.
	//
	// With ErrSkip, n > 0 bytes are taken that make no message. Every other error says what is wrong: with n > 0 about the
	// n bytes it took, and decoding goes on behind them; with n = 0 about the stream, which cannot be understood from here
	// on.
	Decode(in []byte) (m M, n int, err error)
}

// Finisher is what a Decoder may have besides, to say what becomes of the end of the stream.
type Finisher[M any] interface {
	// Finish is Decode for the last bytes of the stream, which may be none: there will be no more. It is asked again until
	// it returns ErrShort; what it has not taken then is reported as ErrTruncated. Without bytes, n is 0, and a message or
	// an error, about bytes that Decode took, is the last.
	Finish(in []byte) (m M, n int, err error)
}

// Limiter is what a Decoder may have besides, to allow messages of another size than DefaultMaxBytes.
type Limiter interface {
	// MaxMessageBytes is how many bytes there may be at most without a whole message at their front. Handlers take more
	// for a TooLongError that ends the stream.
	MaxMessageBytes() int
}

// Trimmer is what a Decoder may have besides, to learn that what was received is decoded as far as it goes, so that
// memory which is not needed all the time can go.
type Trimmer interface{ Trim() }

// Span is where a frame lies in the bytes that it took: [Start, End), 0 <= Start <= End <= n.
type Span struct{ Start, End int }

// Splitter cuts a stream into frames: its messages are their places. NewFramer makes a handler of it; a fuzz target or
// a loop over a file needs none.
type Splitter = Decoder[Span]

func tooLong(n int64, limit int) error { return &TooLongError{Bytes: n, MaxBytes: limit} }

func badFrame(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadFrame, fmt.Sprintf(format, args...))
}

func badConfig(what, field string, value any) error {
	return fmt.Errorf("%w: %s: %s is %v", ErrConfig, what, field, value)
}

// limit returns the limit in a configuration or the default.
func limit(what string, n int) (int, error) {
	switch {
	case n == 0:
		return DefaultMaxBytes, nil
	case n < 0 || n > 1<<30:
		return 0, badConfig(what, "MaxBytes", n)
	}
	return n, nil
}
