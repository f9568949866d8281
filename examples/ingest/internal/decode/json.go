package decode

import (
	"bytes"
	"encoding/json"
)

// JSON understands a JSON text (RFC 8259) a frame. The line has it as "body", without insignificant space, so that it
// is one line.
type JSON struct{}

// Append appends what frame says.
func (JSON) Append(dst, frame []byte) ([]byte, error) {
	out := bytes.NewBuffer(append(dst, `"format":"json","body":`...))
	if err := json.Compact(out, frame); err != nil {
		return dst, malformed("JSON: %v", err)
	}
	return out.Bytes(), nil
}
