package resp

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirnet/weir/buffer"
)

// The Append functions write at the end of b and allocate only when b must grow. Those that can fail leave b as it was.

const crlf = "\r\n"

// AppendSimple appends a simple string. ErrEncode when s has a CR or LF: it would end the string and begin another
// value. It borrows b until return.
func AppendSimple(b *buffer.Buf, s string) error { return appendLine(b, '+', s) }

// AppendError appends an error; by custom its first word, in capitals, is its kind. ErrEncode when s has a CR or LF.
// It borrows b until return.
func AppendError(b *buffer.Buf, s string) error { return appendLine(b, '-', s) }

// AppendInt appends an integer. It borrows b until return.
func AppendInt(b *buffer.Buf, n int64) { appendHeader(b, ':', n) }

// AppendBulk appends a bulk string, which may hold any bytes. It borrows b until return.
func AppendBulk(b *buffer.Buf, p []byte) {
	t := room(b, len(p))
	n := putHeader(t, '$', int64(len(p)))
	n += copy(t[n:], p)
	n += copy(t[n:], crlf)
	b.Extend(n)
}

// AppendBulkString is AppendBulk for a string. It borrows b until return.
func AppendBulkString(b *buffer.Buf, s string) {
	t := room(b, len(s))
	n := putHeader(t, '$', int64(len(s)))
	n += copy(t[n:], s)
	n += copy(t[n:], crlf)
	b.Extend(n)
}

// AppendBulkInt appends a bulk string with a decimal integer in it. It borrows b until return.
func AppendBulkInt(b *buffer.Buf, n int64) {
	var digits [20]byte
	AppendBulk(b, strconv.AppendInt(digits[:0], n, 10))
}

// AppendNull appends the null bulk string. It borrows b until return.
func AppendNull(b *buffer.Buf) { b.AppendString("$-1\r\n") }

// AppendNullArray appends the null array. It borrows b until return.
func AppendNullArray(b *buffer.Buf) { b.AppendString("*-1\r\n") }

// AppendArrayHeader appends what begins an array of n elements; the caller appends them. A request is an array of bulk
// strings. It borrows b until return.
func AppendArrayHeader(b *buffer.Buf, n int) { appendHeader(b, '*', int64(n)) }

// AppendCommand appends a request. It borrows b until return.
func AppendCommand(b *buffer.Buf, args ...[]byte) {
	AppendArrayHeader(b, len(args))
	for _, a := range args {
		AppendBulk(b, a)
	}
}

// AppendValue appends any value. ErrEncode, and nothing appended, when a line in it has a CR or LF or would read as
// another kind, or when its kind is unknown. It borrows b until return.
func AppendValue(b *buffer.Buf, v *Value) error {
	if err := encodable(v); err != nil {
		return err
	}
	appendValue(b, v)
	return nil
}

func appendValue(b *buffer.Buf, v *Value) {
	switch v.Kind {
	case Null:
		AppendNull(b)
	case NullArray:
		AppendNullArray(b)
	case Simple:
		appendBytes(b, '+', v.Bytes)
	case Error:
		appendBytes(b, '-', v.Bytes)
	case Integer:
		AppendInt(b, v.Int)
	case Bulk:
		AppendBulk(b, v.Bytes)
	case Array:
		AppendArrayHeader(b, len(v.Elems))
		for i := range v.Elems {
			appendValue(b, &v.Elems[i])
		}
	case Inline:
		b.Append(v.Bytes)
		b.AppendString(crlf)
	}
}

// encodable looks through the whole value before any of it is written.
func encodable(v *Value) error {
	switch v.Kind {
	case Simple, Error, Inline:
		if i := bytes.IndexAny(v.Bytes, crlf); i >= 0 {
			return fmt.Errorf("%w: %s with a line break at byte %d", ErrEncode, v.Kind, i)
		}
		if v.Kind == Inline && len(v.Bytes) > 0 && strings.IndexByte("+-:$*", v.Bytes[0]) >= 0 {
			return fmt.Errorf("%w: %s that begins with the type byte %q", ErrEncode, v.Kind, v.Bytes[0])
		}
	case Array:
		for i := range v.Elems {
			if err := encodable(&v.Elems[i]); err != nil {
				return err
			}
		}
	case Null, NullArray, Integer, Bulk:
	default:
		return fmt.Errorf("%w: kind %d", ErrEncode, v.Kind)
	}
	return nil
}

func appendLine(b *buffer.Buf, kind byte, s string) error {
	if i := strings.IndexAny(s, crlf); i >= 0 {
		return fmt.Errorf("%w: %q line with a line break at byte %d", ErrEncode, kind, i)
	}
	b.AppendByte(kind)
	b.AppendString(s)
	b.AppendString(crlf)
	return nil
}

func appendBytes(b *buffer.Buf, kind byte, p []byte) {
	b.AppendByte(kind)
	b.Append(p)
	b.AppendString(crlf)
}

// maxHeader is a type byte, a sign, 19 digits, CR LF.
const maxHeader = 24

// room returns the end of b with room for a bulk string of n bytes. It borrows b until return.
func room(b *buffer.Buf, n int) []byte {
	n += len(crlf)
	if b.Room() < maxHeader+n {
		b.Reserve(maxHeader + n)
	}
	return b.Tail()
}

func appendHeader(b *buffer.Buf, kind byte, n int64) {
	b.Extend(putHeader(room(b, 0), kind, n))
}

// putHeader writes a line with a number and returns its length. Nearly all numbers are short: cheaper than strconv.
func putHeader(t []byte, kind byte, n int64) int {
	t[0] = kind
	i, u := 1, uint64(n)
	if n < 0 {
		t[1] = '-'
		i, u = 2, -u
	}
	end := i + 1
	for limit := uint64(10); u >= limit && end-i < 19; limit *= 10 {
		end++
	}
	for j := end - 1; j >= i; j-- {
		t[j] = '0' + byte(u%10)
		u /= 10
	}
	t[end], t[end+1] = '\r', '\n'
	return end + 2
}
