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
	for len(rest) > 0 {
		var section []byte
		var err error
		section, rest, _ = bytes.Cut(rest, []byte{'|'})
		if dst, err = appendSection(dst, section); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendSection appends what stands behind a further bar.
func appendSection(dst, section []byte) ([]byte, error) {
	if len(section) == 0 {
		return dst, malformed("statsd: empty section")
	}
	switch section[0] {
	case '@':
		rate, err := strconv.ParseFloat(string(section[1:]), 64)
		if err != nil || !(rate > 0 && rate <= 1) {
			return dst, malformed("statsd: rate")
		}
		dst = append(dst, `,"rate":`...)
		return appendNumber(dst, rate), nil
	case '#':
		dst = append(dst, `,"tags":[`...)
		for i, tag := range bytes.Split(section[1:], []byte{','}) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendString(dst, string(tag))
		}
		return append(dst, ']'), nil
	}
	dst = append(dst, `,"more":`...) // DogStatsD has container identifiers and times; later versions will have others
	return AppendString(dst, string(section)), nil
}
