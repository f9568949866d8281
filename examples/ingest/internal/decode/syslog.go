package decode

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leodido/go-syslog/v4"
	"github.com/leodido/go-syslog/v4/rfc5424"
)

// Syslog understands syslog messages in the formats of RFC 5424 and RFC 3164, told apart by how each begins.
type Syslog struct {
	location *time.Location
	now      func() time.Time
	modern   sync.Pool // of syslog.Machine: each serves one goroutine at a time
}

// NewSyslog returns a Syslog. Times without a zone are in location, nil being UTC. Those without a year are in the last
// year in which they are not after now, nil being time.Now.
func NewSyslog(location *time.Location, now func() time.Time) *Syslog {
	if location == nil {
		location = time.UTC
	}
	if now == nil {
		now = time.Now
	}
	s := &Syslog{location: location, now: now}
	s.modern.New = func() any { return rfc5424.NewMachine() }
	return s
}

// Append appends what frame says.
func (s *Syslog) Append(dst, frame []byte) ([]byte, error) {
	if isModern(frame) {
		return s.appendModern(dst, frame)
	}
	return s.appendLegacy(dst, frame)
}

// isModern reports whether a version of one to three digits and a space follow the priority: "<13>1 ". A message of RFC
// 3164 with a time of RFC 3339 has digits there, too: "<13>2026-01-02T03:04:05Z ".
func isModern(frame []byte) bool {
	end := bytes.IndexByte(frame[:min(len(frame), len("<191>"))], '>')
	if end < 0 {
		return false
	}
	version := frame[end+1:]
	digits := countDigits(version)
	return digits >= 1 && digits <= 3 && digits < len(version) && version[digits] == ' '
}

// appendModern appends what a message of RFC 5424 says.
func (s *Syslog) appendModern(dst, frame []byte) ([]byte, error) {
	parser := s.modern.Get().(syslog.Machine)
	message, err := parser.Parse(frame)
	s.modern.Put(parser)
	if err != nil {
		return dst, malformed("syslog5424: %.*s", reasonBytes, err)
	}
	m, ok := message.(*rfc5424.SyslogMessage)
	if !ok || m == nil { // the library's machines have a third answer: no message and no error
		return dst, malformed("syslog5424: not understood")
	}
	if m.Version != 1 {
		return dst, malformed("syslog5424: version")
	}
	dst = append(dst, `"format":"syslog5424"`...)
	dst = appendBase(dst, &m.Base)
	if m.StructuredData != nil {
		dst = appendStructured(dst, frame)
	}
	return dst, nil
}

func appendBase(dst []byte, b *syslog.Base) []byte {
	if b.Facility != nil && b.Severity != nil {
		dst = append(dst, `,"facility":`...)
		dst = strconv.AppendUint(dst, uint64(*b.Facility), 10)
		dst = append(dst, `,"severity":`...)
		dst = strconv.AppendUint(dst, uint64(*b.Severity), 10)
	}
	if b.Timestamp != nil {
		dst = append(dst, `,"time":"`...)
		dst = b.Timestamp.AppendFormat(dst, time.RFC3339Nano)
		dst = append(dst, '"')
	}
	dst = appendMember(dst, `,"host":`, b.Hostname)
	dst = appendMember(dst, `,"app":`, b.Appname)
	dst = appendMember(dst, `,"process":`, b.ProcID)
	dst = appendMember(dst, `,"id":`, b.MsgID)
	return appendMember(dst, `,"message":`, b.Message)
}

func appendMember(dst []byte, name string, value *string) []byte {
	if value == nil {
		return dst
	}
	return AppendString(append(dst, name...), *value)
}

// appendStructured appends the structured data of a frame that the library has accepted. The library returns maps,
// which have the last of the parameters with one name, and RFC 5424 allows several (6.3.3): those become a list.
func appendStructured(dst, frame []byte) []byte {
	const fields = 6 // before it, none of which has a space
	for range fields {
		_, frame, _ = bytes.Cut(frame, []byte{' '})
	}
	dst = append(dst, `,"data":{`...)
	for first := true; len(frame) > 0 && frame[0] == '['; first = false {
		if !first {
			dst = append(dst, ',')
		}
		end := bytes.IndexAny(frame, " ]")
		dst = AppendString(dst, string(frame[1:end]))
		var params map[string][]string
		params, frame = cutParams(frame[end:])
		dst = append(dst, ':', '{')
		for i, name := range slices.Sorted(maps.Keys(params)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendString(dst, name)
			dst = append(dst, ':')
			dst = appendValues(dst, params[name])
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// cutParams cuts off ` name="value" name="value"]`.
func cutParams(p []byte) (params map[string][]string, rest []byte) {
	params = map[string][]string{}
	for p[0] == ' ' { // the library has looked at the form
		name, behind, _ := bytes.Cut(p[1:], []byte(`="`))
		var value []byte
		for behind[0] != '"' {
			if behind[0] == '\\' && bytes.IndexByte([]byte(`"\]`), behind[1]) >= 0 {
				behind = behind[1:]
			}
			value, behind = append(value, behind[0]), behind[1:]
		}
		params[string(name)] = append(params[string(name)], string(value))
		p = behind[1:]
	}
	return params, p[1:]
}

// appendValues appends one value as it is, several as a list.
func appendValues(dst []byte, values []string) []byte {
	if len(values) == 1 {
		return AppendString(dst, values[0])
	}
	return appendList(dst, values)
}
