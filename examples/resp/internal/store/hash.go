package store

// Hash maps fields to values; it keeps the order in which fields came until one is removed. The zero value is empty.
type Hash struct {
	fields []field
	index  map[string]int
}

type field struct{ name, value string }

// Len is the number of fields.
func (h *Hash) Len() int { return len(h.fields) }

// At is the field i.
func (h *Hash) At(i int) (name, value string) { return h.fields[i].name, h.fields[i].value }

// Get returns the value of a field. It borrows name until return.
func (h *Hash) Get(name []byte) (value string, ok bool) {
	i, ok := h.index[string(name)]
	if !ok {
		return "", false
	}
	return h.fields[i].value, true
}

// Set gives a field a copy of value and reports whether the field is new. It borrows name and value until return.
func (h *Hash) Set(name, value []byte) bool {
	if i, ok := h.index[string(name)]; ok {
		h.fields[i].value = string(value)
		return false
	}
	if h.index == nil {
		h.index = make(map[string]int)
	}
	f := field{string(name), string(value)}
	h.index[f.name] = len(h.fields)
	h.fields = append(h.fields, f)
	return true
}

// Remove removes a field and reports whether it was there; the last takes its place. It borrows name until return.
func (h *Hash) Remove(name []byte) bool {
	i, ok := h.index[string(name)]
	if !ok {
		return false
	}
	delete(h.index, h.fields[i].name)
	last := len(h.fields) - 1
	if i != last {
		h.fields[i] = h.fields[last]
		h.index[h.fields[i].name] = i
	}
	h.fields[last] = field{}
	h.fields = h.fields[:last]
	return true
}
