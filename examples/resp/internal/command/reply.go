package command

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirnet/weir/handlers/codec/resp"
)

// What Redis replies in the same words every time.
const (
	replyOK          = "+OK\r\n"
	errSyntax        = "-ERR syntax error\r\n"
	errWrongType     = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	errNotInteger    = "-ERR value is not an integer or out of range\r\n"
	errNotPositive   = "-ERR value is out of range, must be positive\r\n"
	errNotInt32      = "-ERR value is out of range, value must between -2147483648 and 2147483647\r\n"
	errOverflow      = "-ERR increment or decrement would overflow\r\n"
	errDecrOverflow  = "-ERR decrement would overflow\r\n"
	errDatabase      = "-ERR DB index is out of range\r\n"
	errStringTooLong = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"
	errExpireNX      = "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"
	errExpireGTLT    = "-ERR GT and LT options at the same time are not compatible\r\n"
)

// previewBytes is how much of an unknown command and of its arguments Redis repeats.
const previewBytes = 128

// raw replies with bytes that are a reply already.
func (s *Session) raw(reply string) { s.out.AppendString(reply) }

func (s *Session) int(n int) { resp.AppendInt(s.out, int64(n)) }

func (s *Session) bool(b bool) {
	if b {
		s.raw(":1\r\n")
		return
	}
	s.raw(":0\r\n")
}

func (s *Session) null() {
	if s.proto == 3 {
		s.raw("_\r\n")
		return
	}
	resp.AppendNull(s.out)
}

func (s *Session) nullArray() {
	if s.proto == 3 {
		s.raw("_\r\n")
		return
	}
	resp.AppendNullArray(s.out)
}

func (s *Session) array(n int) { resp.AppendArrayHeader(s.out, n) }

// mapHeader begins n pairs of a name and a value.
func (s *Session) mapHeader(n int) {
	if s.proto == 3 {
		s.header('%', n)
		return
	}
	s.array(2 * n)
}

// setHeader begins n elements in no order.
func (s *Session) setHeader(n int) {
	if s.proto == 3 {
		s.header('~', n)
		return
	}
	s.array(n)
}

// verbatim replies with text for people.
func (s *Session) verbatim(text string) {
	if s.proto != 3 {
		s.bulk(text)
		return
	}
	s.header('=', len("txt:")+len(text))
	s.raw("txt:" + text + "\r\n")
}

// header begins a reply of a kind that only version 3 of the protocol has.
func (s *Session) header(kind byte, n int) {
	s.out.AppendByte(kind)
	s.out.AppendString(strconv.Itoa(n))
	s.out.AppendString("\r\n")
}

func (s *Session) bulk(text string) { resp.AppendBulkString(s.out, text) }

// errorf replies with an error. Redis puts blanks for line breaks, which arguments may have, and so does this.
func (s *Session) errorf(format string, args ...any) {
	text := strings.NewReplacer("\r", " ", "\n", " ").Replace(fmt.Sprintf(format, args...))
	if err := resp.AppendError(s.out, "ERR "+text); err != nil {
		s.raw("-ERR error\r\n") // cannot be: there is no line break left
	}
}

func (s *Session) wrongArity(name string) {
	s.errorf("wrong number of arguments for '%s' command", name)
}

func (s *Session) badExpire() {
	s.errorf("invalid expire time in '%s' command", s.cmd.name)
}

// unknownCommand repeats the beginning of the request. Redis prints C strings, which end at a NUL byte.
func (s *Session) unknownCommand() {
	var preview strings.Builder
	for _, a := range s.args[1:] {
		if preview.Len() >= previewBytes {
			break
		}
		fmt.Fprintf(&preview, "'%s' ", cString(a, previewBytes-preview.Len()))
	}
	s.errorf("unknown command '%s', with args beginning with: %s", cString(s.args[0], previewBytes), preview.String())
}

func (s *Session) unknownSubcommand() {
	s.errorf("unknown subcommand '%s'. Try %s HELP.", cString(s.args[1], previewBytes), strings.ToUpper(s.cmd.name))
}

// cString is what C prints of p with a precision of n bytes.
func cString(p []byte, n int) string {
	for i, c := range p {
		if c == 0 || i == n {
			return string(p[:i])
		}
	}
	return string(p)
}
