package store

// dueHeap holds the entries that expire, the next first. Each knows its place, so that one can be moved or taken out in
// logarithmic time; one that expires later than the others, which is what a new one mostly does, goes in at once.
type dueHeap []*Entry

// ExpireAt makes e expire at a time in milliseconds since 1970.
func (sh *Shard) ExpireAt(e *Entry, at int64) {
	e.expireAt = at
	sh.Touch(e)
	if e.due == 0 {
		sh.due = append(sh.due, e)
		e.due = len(sh.due)
	}
	sh.due.fix(e.due - 1)
}

// Persist makes e stay.
func (sh *Shard) Persist(e *Entry) {
	if e.due == 0 {
		return
	}
	i, last := e.due-1, len(sh.due)-1
	moved := sh.due[last]
	sh.due[last] = nil
	sh.due = sh.due[:last]
	e.due = 0
	if i < last {
		sh.due.put(moved, i)
		sh.due.fix(i)
	}
	if last < cap(sh.due)/4 && cap(sh.due) > 64 {
		sh.due = append(make(dueHeap, 0, cap(sh.due)/2), sh.due...)
	}
}

// expire removes at most budget entries whose time has come, and returns how many.
func (sh *Shard) expire(now int64, budget int) (removed int) {
	for removed < budget {
		e := sh.due.first()
		if e == nil || e.expireAt >= now {
			break
		}
		sh.Remove(e)
		removed++
	}
	return removed
}

func (h dueHeap) first() *Entry {
	if len(h) == 0 {
		return nil
	}
	return h[0]
}

func (h dueHeap) put(e *Entry, i int) {
	h[i] = e
	e.due = i + 1
}

// fix moves the entry at i to where it belongs.
func (h dueHeap) fix(i int) {
	e := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].expireAt <= e.expireAt {
			break
		}
		h.put(h[parent], i)
		i = parent
	}
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].expireAt < h[child].expireAt {
			child++
		}
		if e.expireAt <= h[child].expireAt {
			break
		}
		h.put(h[child], i)
		i = child
	}
	h.put(e, i)
}
