package store

// Set is a set of strings of which a random one can be taken in constant time. The zero value is empty.
type Set struct {
	members []string
	index   map[string]int
}

// Len is the number of members.
func (s *Set) Len() int { return len(s.members) }

// At is the member i, in no particular order.
func (s *Set) At(i int) string { return s.members[i] }

// Has reports whether p is a member. It borrows p until return.
func (s *Set) Has(p []byte) bool {
	_, ok := s.index[string(p)]
	return ok
}

// Add adds a copy of p and reports whether it was new. It borrows p until return.
func (s *Set) Add(p []byte) bool {
	if s.Has(p) {
		return false
	}
	if s.index == nil {
		s.index = make(map[string]int)
	}
	member := string(p)
	s.index[member] = len(s.members)
	s.members = append(s.members, member)
	return true
}

// Remove removes p and reports whether it was there. It borrows p until return.
func (s *Set) Remove(p []byte) bool {
	i, ok := s.index[string(p)]
	if ok {
		s.RemoveAt(i)
	}
	return ok
}

// RemoveAt removes and returns the member i; the last takes its place.
func (s *Set) RemoveAt(i int) string {
	member, last := s.members[i], len(s.members)-1
	if i != last {
		s.members[i] = s.members[last]
		s.index[s.members[i]] = i
	}
	s.members[last] = ""
	s.members = s.members[:last]
	delete(s.index, member)
	return member
}
