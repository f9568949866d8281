package testenv_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/internal/testenv"
)

// recorder is a testing.TB that remembers how the test ended instead of ending it.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Skipf(format string, args ...any)  { r.skipped = fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }

func TestRequireSkipsUnlessTheFeatureIsAskedFor(t *testing.T) {
	missing := errors.New("no such thing")
	for _, tc := range []struct {
		name, required string
		err            error
		skips, fails   bool
	}{
		{name: "there", required: "uring", err: nil},
		{name: "missing, nothing required", required: "", err: missing, skips: true},
		{name: "missing, another required", required: "xdp,root", err: missing, skips: true},
		{name: "missing, a longer name required", required: "uring2", err: missing, skips: true},
		{name: "missing and required", required: "uring", err: missing, fails: true},
		{name: "missing and required in a list", required: "xdp, uring", err: missing, fails: true},
		{name: "missing, all required", required: "all", err: missing, fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(testenv.Variable, tc.required)
			r := &recorder{}
			testenv.Require(r, "uring", tc.err)
			assert.Equal(t, tc.skips, r.skipped != "", "skipped: %q", r.skipped)
			assert.Equal(t, tc.fails, r.failed != "", "failed: %q", r.failed)
			if tc.err != nil {
				assert.Contains(t, r.skipped+r.failed, "no such thing")
			}
		})
	}
}
