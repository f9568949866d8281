package decode

import (
	"bytes"
	"strconv"
)

// Statsd understands statsd's lines, "name:value|type", with a sampling rate ("|@0.1") and DogStatsD's tags
// ("|#k:v,flag"). Types are c, g, ms, h, d and s.
type Statsd struct{}

// Append appends what frame says.
func (Statsd) Append(dst, frame []byte) ([]byte, error) {
	name, rest, ok := bytes.Cut(bytes.TrimSpace(frame), []byte{':'})
	if !ok || len(name) == 0 {
		return dst, malformed("statsd: name")
	}
	value, rest, ok := bytes.Cut(rest, []byte{'|'})
	if !ok || len(value) == 0 {
		return dst, malformed("statsd: value")
	}
	kind, rest, _ := bytes.Cut(rest, []byte{'|'})
	dst = append(dst, `"format":"statsd","name":`...)
	dst = AppendString(dst, string(name))
	dst = append(dst, `,"type":`...)
	dst = AppendString(dst, string(kind))
	switch string(kind) {
	case "s": // members of sets are any text
		dst = append(dst, `,"value":`...)
		dst = AppendString(dst, string(value))
	case "c", "g", "ms", "h", "d":
		v, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return dst, malformed("statsd: value")
		}
		dst = append(dst, `,"value":`...)
		dst = appendNumber(dst, v)
		if kind[0] == 'g' && (value[0] == '+' || value[0] == '-') {
			dst = append(dst, `,"delta":true`...) // a gauge with a sign changes by that much
		}
	default:
		return dst, malformed("statsd: type")
	}
	return appendSections(dst, rest)
}

// appendSections appends what stands behind further bars. A rate and tags can come once. The others become a list:
// DogStatsD has container identifiers and times, later versions will have more.
func appendSections(dst, rest []byte) ([]byte, error) {
	var rated, tagged bool
	var more [][]byte
	for len(rest) > 0 {
		var section []byte
		section, rest, _ = bytes.Cut(rest, []byte{'|'})
		switch {
		case len(section) == 0:
			return dst, malformed("statsd: empty section")
		case section[0] == '@' && !rated:
			rated = true
			rate, err := strconv.ParseFloat(string(section[1:]), 64)
			if err != nil || !(rate > 0 && rate <= 1) {
				return dst, malformed("statsd: rate")
			}
			dst = appendNumber(append(dst, `,"rate":`...), rate)
		case section[0] == '#' && !tagged:
			tagged = true
			dst = appendList(append(dst, `,"tags":`...), bytes.Split(section[1:], []byte{','}))
		case section[0] == '@' || section[0] == '#':
			return dst, malformed("statsd: a section twice")
		default:
			more = append(more, section)
		}
	}
	if more != nil {
		dst = appendList(append(dst, `,"more":`...), more)
	}
	return dst, nil
}
