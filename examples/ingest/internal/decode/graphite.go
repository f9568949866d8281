package decode

import (
	"bytes"
	"strconv"
)

// Graphite understands Carbon's plaintext protocol: "path value timestamp", a path with or without tags ("a.b;k=v").
type Graphite struct{}

// Append appends what frame says.
func (Graphite) Append(dst, frame []byte) ([]byte, error) {
	path, rest := field(frame)
	value, rest := field(rest)
	stamp, rest := field(rest)
	if len(stamp) == 0 || len(bytes.TrimSpace(rest)) > 0 {
		return dst, malformed("graphite: not three fields")
	}
	v, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		return dst, malformed("graphite: value")
	}
	t, err := strconv.ParseFloat(string(stamp), 64)
	if err != nil {
		return dst, malformed("graphite: timestamp")
	}
	path, tags, tagged := bytes.Cut(path, []byte{';'})
	dst = append(dst, `"format":"graphite","path":`...)
	dst = AppendString(dst, string(path))
	if tagged {
		if dst, err = appendTags(append(dst, `,"tags":{`...), tags); err != nil {
			return dst, err
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `,"value":`...)
	dst = appendNumber(dst, v)
	dst = append(dst, `,"time":`...)
	return appendNumber(dst, t), nil
}

// appendTags appends the tags "k=v;k=v" as members. A key that comes twice is malformed: Carbon would keep one of them.
func appendTags(dst, tags []byte) ([]byte, error) {
	seen := map[string]bool{}
	for {
		tag, rest, more := bytes.Cut(tags, []byte{';'})
		key, value, ok := bytes.Cut(tag, []byte{'='})
		if !ok || len(key) == 0 {
			return dst, malformed("graphite: tag")
		}
		if seen[string(key)] {
			return dst, malformed("graphite: a tag twice")
		}
		if len(seen) > 0 {
			dst = append(dst, ',')
		}
		seen[string(key)] = true
		dst = AppendString(dst, string(key))
		dst = append(dst, ':')
		dst = AppendString(dst, string(value))
		if !more {
			return dst, nil
		}
		tags = rest
	}
}

// field returns the first run of bytes that are not space, and what follows it.
func field(p []byte) (first, rest []byte) {
	start := 0
	for start < len(p) && isSpace(p[start]) {
		start++
	}
	end := start
	for end < len(p) && !isSpace(p[end]) {
		end++
	}
	return p[start:end], p[end:]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }
