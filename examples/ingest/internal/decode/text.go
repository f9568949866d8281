package decode

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string (RFC 8259, 7). What is not UTF-8 becomes U+FFFD, as in encoding/json.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || n != 1 {
				i += n
				continue
			}
			size = n
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscaped(dst, c)
		i += size
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// appendEscaped appends a byte that can't stand in a string as it is.
func appendEscaped(dst []byte, c byte) []byte {
	switch {
	case c >= utf8.RuneSelf:
		return append(dst, "\ufffd"...)
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c == '\n':
		return append(dst, '\\', 'n')
	case c == '\r':
		return append(dst, '\\', 'r')
	case c == '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

// appendNumber appends v; what JSON has no number for, as a string. Only what would be more than 21 digits has an
// exponent, as in encoding/json: a time is one that people can read, and 1e308 does not become three hundred digits.
func appendNumber(dst []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return AppendString(dst, strconv.FormatFloat(v, 'g', -1, 64))
	}
	format := byte('f')
	if size := math.Abs(v); size != 0 && (size < 1e-6 || size >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, v, format, -1, 64)
}

// appendList appends a list of strings.
func appendList[S ~string | ~[]byte](dst []byte, list []S) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, string(s))
	}
	return append(dst, ']')
}

// escapeControls escapes what is valid in a string of JSON and not safe to show on a terminal. Such characters are in
// strings only, so that all of the line can be looked at.
func escapeControls(line []byte, start int) []byte {
	for start < len(line) && !beginsUnsafe(line[start]) {
		start++
	}
	if start == len(line) {
		return line
	}
	rest := bytes.Clone(line[start:])
	line = line[:start]
	for len(rest) > 0 {
		r, n := utf8.DecodeRune(rest)
		if isUnsafe(r) {
			line = fmt.Appendf(line, `\u%04x`, r)
		} else {
			line = append(line, rest[:n]...)
		}
		rest = rest[n:]
	}
	return line
}

// isUnsafe reports whether r can command a terminal (DEL, the controls of C1) or turn text round (the property
// Bidi_Control, Unicode Standard Annex 9). AppendString escapes the controls of C0.
func isUnsafe(r rune) bool {
	return r >= 0x7f && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r)
}

// beginsUnsafe reports whether c may be the first byte of what is unsafe in UTF-8.
func beginsUnsafe(c byte) bool {
	return c == 0x7f || c == 0xc2 || c == 0xd8 || c == 0xe2
}

func appendBase64(dst, p []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, p)
	return append(dst, '"')
}
