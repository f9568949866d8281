package decode

import (
	"bytes"
	"net/netip"
	"strconv"
	"time"
)

const (
	maxPriority  = 191
	maxPrefixes  = 3 // a counter, a sequence number, a host
	maxHostBytes = 255
	maxTagBytes  = 48
	maxAhead     = 7 * 24 * time.Hour
)

// appendLegacy appends what a message of RFC 3164 says. The RFC describes what was seen, not a grammar, so this accepts
// what is seen today: times with a year, with fractions of a second or of RFC 3339, Cisco's counters before the time
// and its colon behind it. Only time and priority have to be there. What does not look like a host or a tag is text, so
// that the text is always the end of the frame as it came, whatever bytes it has.
func (s *Syslog) appendLegacy(dst, frame []byte) ([]byte, error) {
	priority, rest, ok := cutPriority(frame)
	if !ok {
		return dst, malformed("syslog3164: priority")
	}
	prefix, at, rest, ok := s.cutPrefixedTime(rest)
	if !ok {
		return dst, malformed("syslog3164: time")
	}
	host, rest := cutHost(bytes.TrimLeft(bytes.TrimPrefix(rest, []byte{':'}), " "))
	tag, process, text := cutTag(rest)
	dst = append(dst, `"format":"syslog3164","facility":`...)
	dst = strconv.AppendInt(dst, int64(priority/8), 10)
	dst = append(dst, `,"severity":`...)
	dst = strconv.AppendInt(dst, int64(priority%8), 10)
	dst = append(dst, `,"time":"`...)
	dst = at.AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	for _, m := range []struct {
		name  string
		value []byte
	}{{`,"prefix":`, prefix}, {`,"host":`, host}, {`,"app":`, tag}, {`,"process":`, process}, {`,"message":`, text}} {
		if len(m.value) > 0 {
			dst = AppendString(append(dst, m.name...), string(m.value))
		}
	}
	return dst, nil
}

// cutPriority cuts "<34>" off.
func cutPriority(frame []byte) (priority int, rest []byte, ok bool) {
	if len(frame) == 0 || frame[0] != '<' {
		return 0, nil, false
	}
	digits, rest, ok := bytes.Cut(frame[1:], []byte{'>'})
	if !ok || len(digits) == 0 || countDigits(digits) != len(digits) || len(digits) > 1 && digits[0] == '0' {
		return 0, nil, false
	}
	priority, err := strconv.Atoi(string(digits))
	return priority, rest, err == nil && priority <= maxPriority
}

// cutPrefixedTime cuts a time off, and what Cisco's devices put before it: "643: ", "105: 000104: ", "17: host: ", and
// a star or a dot where the clock is not to be trusted.
func (s *Syslog) cutPrefixedTime(p []byte) (prefix []byte, at time.Time, rest []byte, ok bool) {
	p = bytes.TrimLeft(p, " ")
	rest = p
	for range maxPrefixes + 1 {
		if len(rest) > 0 && (rest[0] == '*' || rest[0] == '.') {
			rest = rest[1:]
		}
		prefix := bytes.TrimRight(p[:len(p)-len(rest)], " ")
		if at, behind, ok := s.cutTime(rest); ok {
			return prefix, at, behind, true
		}
		word, behind, found := bytes.Cut(rest, []byte{':'})
		if !found || len(word) > 0 && !isGraphic(word, maxHostBytes) {
			break
		}
		rest = bytes.TrimLeft(behind, " ")
	}
	return nil, time.Time{}, nil, false
}

// cutTime cuts off a time of RFC 3339, or "Jan  2 15:04:05" with or without a year and fractions of a second.
func (s *Syslog) cutTime(p []byte) (at time.Time, rest []byte, ok bool) {
	if countDigits(p) == len("2006") {
		end := bytes.IndexByte(p, ' ')
		if end < 0 {
			return at, nil, false
		}
		at, err := time.Parse(time.RFC3339, string(p[:end]))
		return at, p[end:], err == nil
	}
	const month = "Jan"
	if len(p) <= len(month) {
		return at, nil, false
	}
	name, rest := p[:len(month)], p[len(month):]
	day, rest := field(rest)
	clock, behind := field(rest)
	layout, text := "Jan 2 15:04:05", append(append(append([]byte(nil), name...), ' '), day...)
	if len(clock) == len("2006") && countDigits(clock) == len(clock) {
		layout, text = "Jan 2 2006 15:04:05", append(append(text, ' '), clock...)
		clock, behind = field(behind)
	}
	if n := len(clock) - 1; n > 0 && clock[n] == ':' { // it is not part of the time
		clock, behind = clock[:n], p[len(p)-len(behind)-1:]
	}
	at, err := time.ParseInLocation(layout, string(append(append(text, ' '), clock...)), s.location)
	if err != nil {
		return at, nil, false
	}
	if at.Year() == 0 {
		at = dated(at, s.now())
	}
	return at, behind, true
}

// dated returns at, a time without a year, in the last year in which it is not in the future: a message may be late by
// months, but is not sent before its time. A clock that is up to maxAhead fast counts as right.
func dated(at, now time.Time) time.Time {
	const leap = 8 // years from one 29 February to the next at most
	latest := now.Add(maxAhead).In(at.Location())
	for year := latest.Year(); year >= latest.Year()-leap; year-- {
		t := time.Date(year, at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), at.Location())
		if t.Day() == at.Day() && !t.After(latest) {
			return t
		}
	}
	return at
}

// cutHost cuts off a host when there is one: some systems send none, and their tag comes first.
func cutHost(p []byte) (host, rest []byte) {
	end := bytes.IndexByte(p, ' ')
	if end < 0 || !isGraphic(p[:end], maxHostBytes) {
		return nil, p
	}
	if bytes.ContainsAny(p[:end], ":[") {
		if _, err := netip.ParseAddr(string(p[:end])); err != nil {
			return nil, p
		}
	}
	return p[:end], bytes.TrimLeft(p[end:], " ")
}

// cutTag cuts off "tag: " or "tag[process]: ". Without one, all is text.
func cutTag(p []byte) (tag, process, text []byte) {
	end := bytes.IndexAny(p[:min(len(p), maxTagBytes+1)], ":[] ")
	if end < 0 || !isGraphic(p[:end], maxTagBytes) {
		return nil, nil, p
	}
	tag, text = p[:end], p[end:]
	if text[0] == '[' {
		n := bytes.IndexAny(text[1:], "[]")
		if n < 0 || text[1+n] != ']' {
			return nil, nil, p
		}
		process, text = text[1:1+n], text[1+n+1:]
	}
	if !bytes.HasPrefix(text, []byte(": ")) && string(text) != ":" {
		return nil, nil, p
	}
	return tag, process, text[min(len(text), len(": ")):]
}

// isGraphic reports whether p is 1 to most visible characters of ASCII.
func isGraphic(p []byte, most int) bool {
	for _, c := range p {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(p) > 0 && len(p) <= most
}

// countDigits returns how many digits p begins with.
func countDigits(p []byte) (n int) {
	for n < len(p) && p[n] >= '0' && p[n] <= '9' {
		n++
	}
	return n
}
