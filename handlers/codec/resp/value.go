package resp

// Kind is the type of a Value.
type Kind uint8

// The kinds of RESP2. The zero Kind is the null bulk string, RESP2's usual "nothing".
const (
	Null      Kind = iota // $-1
	NullArray             // *-1
	Simple                // +OK
	Error                 // -ERR text
	Integer               // :1
	Bulk                  // $2 OK
	Array                 // *1 and its elements
	Inline                // a line without a type byte; see Config.Inline
)

//weir:immutable names
var kindNames = [...]string{"null", "null array", "simple", "error", "integer", "bulk", "array", "inline"}

// String implements fmt.Stringer.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Value is any RESP2 value. One that a ValueParser returned belongs to it and is valid as long as the input it was
// parsed from, in a handler until ChannelRead returns; Clone makes one to keep.
type Value struct {
	Kind  Kind
	Int   int64   // of an Integer
	Bytes []byte  // of a Simple, Error, Bulk or Inline
	Elems []Value // of an Array
}

// Clone returns a deep copy that shares no memory with v.
func (v *Value) Clone() *Value {
	c := clone(v)
	return &c
}

// clone recurses as deep as arrays nest, which the parser bounds.
func clone(v *Value) Value {
	c := Value{Kind: v.Kind, Int: v.Int}
	if v.Bytes != nil {
		c.Bytes = append(make([]byte, 0, len(v.Bytes)), v.Bytes...)
	}
	if v.Elems != nil {
		c.Elems = make([]Value, len(v.Elems))
		for i := range v.Elems {
			c.Elems[i] = clone(&v.Elems[i])
		}
	}
	return c
}
