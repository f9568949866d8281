package resp

import "math"

// strictInt reads a decimal integer in the only form that Redis writes and takes in lengths: an optional minus, no
// plus, no leading zero, nothing around it.
func strictInt(b []byte) (n int64, ok bool) {
	if len(b) == 1 && b[0] == '0' {
		return 0, true
	}
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || digits[0] == '0' {
		return 0, false
	}
	return magnitude(digits, len(digits) != len(b))
}

// looseInt reads a decimal integer with an optional sign: the protocol's text allows a plus in integer replies.
func looseInt(b []byte) (n int64, ok bool) {
	digits, negative := b, false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		digits, negative = b[1:], b[0] == '-'
	}
	if len(digits) == 0 {
		return 0, false
	}
	return magnitude(digits, negative)
}

func magnitude(digits []byte, negative bool) (int64, bool) {
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	var u uint64
	for _, c := range digits {
		d := uint64(c - '0')
		if d > 9 || u > (limit-d)/10 {
			return 0, false
		}
		u = u*10 + d
	}
	if negative {
		return -int64(u), true // of 1<<63 too: two's complement
	}
	return int64(u), true
}

// shortLength reads what nearly every header line is: 1 to 8 digits from in[i] on, then CR LF. It returns the number
// and the offset behind the line, or next = 0 when the line is anything else or not complete: then the slow way
// decides.
func shortLength(in []byte, i int) (n, next int) {
	if i >= len(in) {
		return 0, 0
	}
	d := in[i] - '0'
	if d > 9 {
		return 0, 0
	}
	n = int(d)
	end := min(len(in), i+9)
	for i++; i < end; i++ {
		c := in[i]
		if d = c - '0'; d > 9 {
			if c == '\r' && i+1 < len(in) && in[i+1] == '\n' {
				return n, i + 2
			}
			return 0, 0
		}
		if n == 0 {
			return 0, 0 // a leading zero
		}
		n = n*10 + int(d)
	}
	return 0, 0
}
