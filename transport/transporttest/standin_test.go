package transporttest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// standIn is a testing.TB whose failures do not fail the test.
type standIn struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	log      []string
	cleanups []func()
}

func (s *standIn) Helper() {}

func (s *standIn) note(failed bool, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = s.failed || failed
	s.log = append(s.log, text)
}

func (s *standIn) Log(args ...any)                 { s.note(false, fmt.Sprint(args...)) }
func (s *standIn) Logf(format string, args ...any) { s.note(false, fmt.Sprintf(format, args...)) }
func (s *standIn) Error(args ...any)               { s.note(true, fmt.Sprint(args...)) }
func (s *standIn) Errorf(format string, args ...any) {
	s.note(true, fmt.Sprintf(format, args...))
}

func (s *standIn) FailNow() {
	s.note(true, "")
	runtime.Goexit()
}

func (s *standIn) Fatal(args ...any) {
	s.note(true, fmt.Sprint(args...))
	runtime.Goexit()
}

func (s *standIn) Fatalf(format string, args ...any) {
	s.note(true, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (s *standIn) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *standIn) Cleanup(fn func()) { s.cleanups = append(s.cleanups, fn) }

// trial runs one claim on f and reports whether it held, and what it said. A panic counts as a failure.
func trial(t *testing.T, f Factory, name string) (held bool, said string) {
	t.Helper()
	var c *claim
	for _, each := range claims() {
		if each.name == name {
			c = &each
		}
	}
	if c == nil {
		t.Fatalf("there is no claim %q", name)
	}
	s := &standIn{TB: t}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() {
			if v := recover(); v != nil {
				s.note(true, fmt.Sprint("panic: ", v))
			}
		}()
		prove(s, f, *c)
	}()
	<-over
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	return !s.failed, strings.Join(s.log, "\n")
}
