package store

// Match reports whether s matches a pattern as Redis does for KEYS: * is any run of bytes, ? any one byte, [a-c] and
// [^a-c] a class, \ takes the next byte as it is. fold ignores the case of ASCII letters. Its time is bounded by the
// product of the lengths.
//
// The odd cases follow Redis: an empty s matches only an empty pattern, a class that is not closed ends with the
// pattern, ranges compare bytes as signed (C's char on x86) and may be given backwards.
func Match(pattern, s []byte, fold bool) bool {
	if len(s) == 0 {
		return len(pattern) == 0
	}
	p, i := 0, 0
	star, mark := -1, 0 // where to go on when the bytes behind the last * do not match
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			for p+1 < len(pattern) && pattern[p+1] == '*' {
				p++
			}
			star, mark = p, i
			if p++; p == len(pattern) {
				return true
			}
			continue
		}
		if p < len(pattern) {
			if next, ok := matchByte(pattern, p, s[i], fold); ok {
				p, i = next, i+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		p, i = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchByte matches c with the element at pattern[p] and returns where the next element begins.
func matchByte(pattern []byte, p int, c byte, fold bool) (next int, ok bool) {
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		return matchClass(pattern, p+1, c, fold)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, equal(pattern[p], c, fold)
}

func matchClass(pattern []byte, p int, c byte, fold bool) (next int, ok bool) {
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	matched := false
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			matched = matched || pattern[p] == c // the case counts here, in Redis too
		case p+2 < len(pattern) && pattern[p+1] == '-':
			matched = matched || inRange(pattern[p], pattern[p+2], c, fold)
			p += 2
		default:
			matched = matched || equal(pattern[p], c, fold)
		}
	}
	return min(p+1, len(pattern)), matched != not
}

func inRange(from, to, c byte, fold bool) bool {
	lo, hi, x := int8(from), int8(to), int8(c)
	if lo > hi {
		lo, hi = hi, lo
	}
	if fold {
		lo, hi, x = int8(lower(byte(lo))), int8(lower(byte(hi))), int8(lower(c))
	}
	return x >= lo && x <= hi
}

func equal(a, b byte, fold bool) bool {
	return a == b || fold && lower(a) == lower(b)
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
