//go:build linux

package load

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// touchAtOnce is how many idle connections wait for their answer at a time.
const touchAtOnce = 64

// Touch echoes one message on every idle connection, so that the server has used each of them once.
func (e *Engine) Touch() error {
	idle := e.conns[e.cfg.Conns:]
	e.bad, e.errs, e.firstErr = 0, 0, nil
	t := &touch{Engine: e}
	work := e.work
	e.work = t
	defer func() { e.work = work }()
	for from := 0; from < len(idle); from += touchAtOnce {
		some := idle[from:min(from+touchAtOnce, len(idle))]
		for i := range some {
			t.flying++
			e.push(&some[i], 1)
		}
		for limit := e.now() + drainTimeout; t.flying > 0; {
			if e.poll() > limit {
				return fmt.Errorf("load: %d of %d idle connections got no answer: %w", t.flying, len(some), unix.ETIMEDOUT)
			}
		}
	}
	if e.bad > 0 || e.firstErr != nil {
		return fmt.Errorf("load: idle connections: %d wrong bytes, %d errors: %w", e.bad, e.errs, e.firstErr)
	}
	return nil
}

// touch is the workload of Touch.
type touch struct {
	*Engine
	flying int64
}

func (t *touch) begin(time.Duration) {}

func (t *touch) tick(time.Duration) {}

func (t *touch) received(c *conn, n int, _ time.Duration) { t.flying -= int64(t.completed(c, n)) }

func (t *touch) failed(*conn) { t.flying-- }

func (t *touch) owed() int64 { return t.flying }
