package codec

// skip passes over the bytes of a frame that is too long and whose length is known.
type skip struct {
	left int64
	err  error // to be reported at its end
}

// begin skips total > 0 bytes of which in has the first. With slow, err is reported at their end instead of now.
func (s *skip) begin(in []byte, total int64, err error, slow bool) (n int, _ error) {
	s.left = total
	if slow {
		s.err = err
		return s.next(in)
	}
	n, _ = s.next(in)
	return n, err
}

// next goes on. in is not empty, and there is something left.
func (s *skip) next(in []byte) (n int, err error) {
	n = int(min(s.left, int64(len(in))))
	s.left -= int64(n)
	if s.left > 0 || s.err == nil {
		return n, ErrSkip
	}
	err, s.err = s.err, nil
	return n, err
}

// finish returns the error of a frame whose end never came, or ErrShort.
func (s *skip) finish() error {
	err := s.err
	s.left, s.err = 0, nil
	if err == nil {
		return ErrShort
	}
	return err
}
