// Package resp reads and writes the Redis serialization protocol, version 2: requests on a server's side, values on a
// client's.
//
// CommandParser and ValueParser are the parsers alone, on plain bytes. CommandDecoder and ValueDecoder are handlers
// around them, ValueEncoder and the Append functions write. Limits and the wording of errors are those of Redis 7;
// where it is more lenient than safe (bytes in the place of CR LF), this package is strict.
//
// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/ and the behaviour of redis-server 7.0 on a
// socket.
package resp

import (
	"errors"
	"fmt"
	"math"
)

// What callers branch on.
var (
	// ErrProtocol is in the chain of every error about bytes that are not RESP or exceed a limit.
	ErrProtocol = errors.New("resp: protocol error")
	// ErrEncode is returned for a value that cannot be written: nothing of it was.
	ErrEncode = errors.New("resp: cannot encode")
	// ErrConfig is returned for limits that make no sense.
	ErrConfig = errors.New("resp: bad config")
)

// The default limits: Redis' proto-max-bulk-len, its bound of arguments before version 7, PROTO_INLINE_MAX_SIZE and
// client-query-buffer-limit; the depth is Netty's.
const (
	DefaultMaxBulkBytes    = 512 << 20
	DefaultMaxElements     = 1 << 20
	DefaultMaxLineBytes    = 64 << 10
	DefaultMaxDepth        = 1024
	DefaultMaxMessageBytes = 1 << 30
)

// Config holds the limits of a parser. The zero value works.
type Config struct {
	// MaxBulkBytes bounds one bulk string. Zero means 512 MiB.
	MaxBulkBytes int
	// MaxElements bounds the arguments of a command and the values of a message, those of nested arrays included. Zero
	// means 1,048,576.
	MaxElements int
	// MaxLineBytes bounds an inline command and every other line, counted as Redis does: its type byte is, its LF is
	// not. Zero means 64 KiB.
	MaxLineBytes int
	// MaxDepth bounds how deep arrays nest: 1 is an array without arrays in it. Zero means 1024.
	MaxDepth int
	// MaxMessageBytes bounds a whole message, and what a handler keeps while reading is paused. Zero means 1 GiB; the
	// most is 4 GiB - 1.
	MaxMessageBytes int
	// Inline makes a ValueParser take a line that begins with no type byte as a value of kind Inline instead of an
	// error.
	Inline bool
}

// withDefaults returns cfg with its zeros replaced, or what is wrong with it.
func (cfg Config) withDefaults() (Config, error) {
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{
		{"MaxBulkBytes", &cfg.MaxBulkBytes, DefaultMaxBulkBytes},
		{"MaxElements", &cfg.MaxElements, DefaultMaxElements},
		{"MaxLineBytes", &cfg.MaxLineBytes, DefaultMaxLineBytes},
		{"MaxDepth", &cfg.MaxDepth, DefaultMaxDepth},
		{"MaxMessageBytes", &cfg.MaxMessageBytes, DefaultMaxMessageBytes},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 0 || int64(*f.value) > math.MaxUint32 {
			return cfg, fmt.Errorf("%w: %s is %d", ErrConfig, f.name, *f.value)
		}
	}
	return cfg, nil
}

// ProtocolError says what is wrong with the received bytes, in the words of Redis.
type ProtocolError struct {
	Reason string // "invalid bulk length"
}

// Error implements error.
func (e *ProtocolError) Error() string { return "resp: protocol error: " + e.Reason }

// Unwrap makes errors.Is(err, ErrProtocol) true.
func (e *ProtocolError) Unwrap() error { return ErrProtocol }

// Reply is the error that Redis replies with before it closes the connection, for AppendError.
func (e *ProtocolError) Reply() string { return "ERR Protocol error: " + e.Reason }

func protocolError(reason string) error { return &ProtocolError{Reason: reason} }

// The reasons; those marked with * Redis does not have, because it does not look.
const (
	reasonMultibulk      = "invalid multibulk length"
	reasonBulk           = "invalid bulk length"
	reasonBulkEnd        = "expected CRLF after bulk string" // *
	reasonLineEnd        = "expected CRLF"                   // *
	reasonBigMultibulk   = "too big mbulk count string"
	reasonBigBulk        = "too big bulk count string"
	reasonBigInline      = "too big inline request"
	reasonQuotes         = "unbalanced quotes in request"
	reasonMessage        = "too big message"          // *
	reasonInteger        = "invalid integer"          // *
	reasonType           = "unknown type byte"        // *
	reasonDepth          = "arrays nested too deeply" // *
	reasonBigLine        = "too big line"             // *
	reasonElements       = "too many elements"        // *
	redisReasonExpectedD = "expected '$', got '%c'"
)
