package admission

import (
	"encoding/binary"
	"strconv"
	"time"
)

// BusyRESP appends an error of Redis's protocol, such as "-BUSY rate, retry after 120 ms".
func BusyRESP(dst []byte, reason Reason, retryAfter time.Duration) []byte {
	dst = append(dst, '-')
	return append(busyText(dst, reason, retryAfter), "\r\n"...)
}

// BusyHTTP appends a response of HTTP/1.1: 503 with Retry-After in whole seconds, at least one (RFC 9110, 10.2.3).
func BusyHTTP(dst []byte, reason Reason, retryAfter time.Duration) []byte {
	dst = append(dst, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: "...)
	dst = strconv.AppendInt(dst, max(1, int64((retryAfter+time.Second-1)/time.Second)), 10)
	dst = append(dst, "\r\nContent-Type: text/plain\r\nContent-Length: "...)
	text := busyText(nil, reason, retryAfter)
	dst = strconv.AppendInt(dst, int64(len(text)+1), 10)
	dst = append(dst, "\r\nConnection: close\r\n\r\n"...)
	return append(append(dst, text...), '\n')
}

// BusyFrame appends a frame: its length in four bytes, big-endian, then the text of BusyRESP without the dash.
func BusyFrame(dst []byte, reason Reason, retryAfter time.Duration) []byte {
	at := len(dst)
	dst = busyText(append(dst, 0, 0, 0, 0), reason, retryAfter)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func busyText(dst []byte, reason Reason, retryAfter time.Duration) []byte {
	dst = append(append(dst, "BUSY "...), reason.String()...)
	dst = append(dst, ", retry after "...)
	dst = strconv.AppendInt(dst, max(1, retryAfter.Milliseconds()), 10)
	return append(dst, " ms"...)
}
