package resp

import (
	"bytes"

	"github.com/weirnet/weir/handlers/codec"
)

// decodeInline reads a request that is one line of words, as a person types it. Redis ends it at LF, with or without
// CR, and stops looking at a NUL byte; here a NUL is a byte like any other.
func (p *CommandParser) decodeInline(in []byte) (int, error) {
	from := min(p.scanned, len(in))
	i := bytes.IndexByte(in[from:], '\n')
	end := from + i
	if i < 0 {
		end = len(in) - 1
	}
	if end > p.cfg.MaxLineBytes || i < 0 && len(in) > p.cfg.MaxLineBytes {
		return 0, protocolError(reasonBigInline)
	}
	if i < 0 {
		p.scanned = len(in)
		return 0, codec.ErrShort
	}
	line := in[:end]
	if end > 0 && line[end-1] == '\r' {
		line = line[:end-1]
	}
	if !p.split(line) {
		return 0, protocolError(reasonQuotes)
	}
	return end + 1, nil
}

// split cuts line into words, which may be in single or double quotes, at blanks. False: a quote is not closed, or what
// closes it is not followed by a blank.
func (p *CommandParser) split(line []byte) bool {
	p.cmd.Args = p.cmd.Args[:0]
	p.plain = p.plain[:0]
	if cap(p.plain) < len(line) && bytes.ContainsAny(line, `"'`) {
		p.plain = make([]byte, 0, len(line)) // unescaping never makes longer: words keep their place in it
	}
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return true
		}
		start := i
		for i < len(line) && !endsWord(line[i]) && line[i] != '"' && line[i] != '\'' {
			i++
		}
		word := line[start:i:i]
		if i < len(line) && (line[i] == '"' || line[i] == '\'') {
			from := len(p.plain)
			p.plain = append(p.plain, word...)
			next, ok := p.quoted(line, i)
			if !ok {
				return false
			}
			i = next
			word = p.plain[from:len(p.plain):len(p.plain)]
		}
		p.cmd.Args = append(p.cmd.Args, word)
	}
}

// quoted appends the quoted part of a word, which begins at line[i], to p.plain; it ends the word.
func (p *CommandParser) quoted(line []byte, i int) (next int, ok bool) {
	quote := line[i]
	for i++; i < len(line); i++ {
		c := line[i]
		switch {
		case c == quote:
			return i + 1, i+1 == len(line) || isSpace(line[i+1])
		case c == '\\' && quote == '\'':
			if i+1 < len(line) && line[i+1] == '\'' {
				i++
				c = '\''
			}
		case c == '\\' && i+3 < len(line) && line[i+1] == 'x' && hex(line[i+2]) >= 0 && hex(line[i+3]) >= 0:
			c = byte(hex(line[i+2])<<4 | hex(line[i+3]))
			i += 3
		case c == '\\' && i+1 < len(line):
			i++
			c = unescape(line[i])
		}
		p.plain = append(p.plain, c)
	}
	return i, false
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

// isSpace is C's isspace, which skips blanks before a word.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// endsWord tells the blanks that end a word; Redis leaves \v and \f out.
func endsWord(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func hex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
