package decode

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON understands a JSON text (RFC 8259) a frame. The line has it as "body", without insignificant space, so that it
// is one line. A text in which an object has a name twice is malformed: of its readers, some would see one value and
// some the other (RFC 8259, 4).
type JSON struct{}

// Append appends what frame says.
func (JSON) Append(dst, frame []byte) ([]byte, error) {
	out, err := jsontext.AppendFormat(append(dst, `"format":"json","body":`...), frame,
		jsontext.PreserveRawStrings(true))
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) { // as a whole it repeats names
		return dst, malformed("JSON: %.*s, at byte %d", reasonBytes, syntax.Err, syntax.ByteOffset)
	}
	if err != nil {
		return dst, malformed("JSON")
	}
	return out, nil
}
