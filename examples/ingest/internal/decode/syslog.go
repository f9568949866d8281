package decode

import (
	"bytes"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leodido/go-syslog/v4"
	"github.com/leodido/go-syslog/v4/rfc3164"
	"github.com/leodido/go-syslog/v4/rfc5424"
)

// Syslog understands syslog messages in the formats of RFC 5424 and RFC 3164, told apart by how each begins.
type Syslog struct {
	modern, legacy sync.Pool // of syslog.Machine: each serves one goroutine at a time
}

// NewSyslog returns a Syslog. Times without a zone are in location, nil being UTC.
func NewSyslog(location *time.Location) *Syslog {
	if location == nil {
		location = time.UTC
	}
	s := &Syslog{}
	s.modern.New = func() any { return rfc5424.NewMachine() }
	s.legacy.New = func() any {
		return rfc3164.NewMachine(rfc3164.WithYear(rfc3164.CurrentYear{}), rfc3164.WithLocaleTimezone(location),
			rfc3164.WithRFC3339(), rfc3164.WithLenientDay())
	}
	return s
}

// Append appends what frame says.
func (s *Syslog) Append(dst, frame []byte) ([]byte, error) {
	pool, format := &s.legacy, "syslog3164"
	if isModern(frame) {
		pool, format = &s.modern, "syslog5424"
	}
	parser := pool.Get().(syslog.Machine)
	message, err := parser.Parse(frame)
	pool.Put(parser)
	if err != nil {
		return dst, malformed("%s: %.*s", format, reasonBytes, err)
	}
	dst = append(dst, `"format":"`...)
	dst = append(dst, format...)
	dst = append(dst, '"')
	switch m := message.(type) {
	case *rfc5424.SyslogMessage:
		dst = appendBase(dst, &m.Base)
		if m.StructuredData != nil {
			dst = appendStructured(dst, *m.StructuredData)
		}
	case *rfc3164.SyslogMessage:
		dst = appendBase(dst, &m.Base)
	}
	return dst, nil
}

// isModern reports whether a version of one to three digits and a space follow the priority: "<13>1 ". A message of RFC
// 3164 with a time of RFC 3339 has digits there, too: "<13>2026-01-02T03:04:05Z ".
func isModern(frame []byte) bool {
	end := bytes.IndexByte(frame[:min(len(frame), len("<191>"))], '>')
	if end < 0 {
		return false
	}
	version := frame[end+1:]
	digits := 0
	for digits < len(version) && version[digits] >= '0' && version[digits] <= '9' {
		digits++
	}
	return digits >= 1 && digits <= 3 && digits < len(version) && version[digits] == ' '
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

// appendStructured appends structured data, its keys sorted: the library returns maps.
func appendStructured(dst []byte, data map[string]map[string]string) []byte {
	dst = append(dst, `,"data":{`...)
	for i, id := range sortedKeys(data) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, id)
		dst = append(dst, ':', '{')
		for j, name := range sortedKeys(data[id]) {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = AppendString(dst, name)
			dst = append(dst, ':')
			dst = AppendString(dst, data[id][name])
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
