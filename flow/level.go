package flow

import (
	"fmt"
	"math"

	"github.com/weirnet/weir/internal/invariants"
)

// LevelConfig says where a Level turns. The unit is the caller's: bytes, messages, connections.
type LevelConfig struct {
	// High is where the level becomes high: at that value, or when Strict above it.
	High int
	// Low is where it becomes normal again: at that value, or when Strict below it. 0 < Low < High, so that an empty
	// level is always normal and a value that moves within one mark does not make it flutter.
	Low    int
	Strict bool
}

// Crossing says what a change of a Level's value did.
type Crossing int8

const (
	// Stayed: the level is on the side it was on.
	Stayed Crossing = iota
	// Rose: it became high.
	Rose
	// Fell: it became normal again.
	Fell
)

// String names c.
func (c Crossing) String() string {
	switch c {
	case Stayed:
		return "stayed"
	case Rose:
		return "rose"
	case Fell:
		return "fell"
	}
	return fmt.Sprintf("Crossing(%d)", int8(c))
}

// Level watches a value and tells, with hysteresis, when it becomes too high and when it is normal again. Each crossing
// is told exactly once, and they alternate. A Level belongs to one goroutine. Copies are independent; the zero value is
// not usable.
type Level struct {
	rise, fall int // high from rise on, normal from fall down
	value      int
	high       bool
}

// NewLevel returns a normal Level of value zero, by value so that it can be embedded. The error wraps ErrConfig.
func NewLevel(cfg LevelConfig) (Level, error) {
	if cfg.Low <= 0 || cfg.Low >= cfg.High || cfg.Strict && cfg.High == math.MaxInt {
		return Level{}, fmt.Errorf("flow: level with high %d and low %d (strict %t), want 0 < low < high: %w",
			cfg.High, cfg.Low, cfg.Strict, ErrConfig)
	}
	l := Level{rise: cfg.High, fall: cfg.Low}
	if cfg.Strict {
		l.rise++
		l.fall--
	}
	return l, nil
}

// Set changes the value to n.
func (l *Level) Set(n int) Crossing {
	if invariants.Enabled {
		invariants.Check(l.rise > 0, "flow: Level without NewLevel")
		invariants.Check(n >= 0, "flow: level of %d", n)
	}
	l.value = n
	switch {
	case !l.high && n >= l.rise:
		l.high = true
		return Rose
	case l.high && n <= l.fall:
		l.high = false
		return Fell
	}
	return Stayed
}

// Add changes the value by n, which may be negative. A value below zero is an accounting error of the caller: builds
// with -tags invariants panic, others go on counting. A sum beyond the range of int stays at its end.
func (l *Level) Add(n int) Crossing {
	sum := l.value + n
	if n > 0 && sum < l.value {
		sum = math.MaxInt
	} else if n < 0 && sum > l.value {
		sum = math.MinInt
	}
	return l.Set(sum)
}

// Value is the present value.
func (l *Level) Value() int { return l.value }

// High reports whether the level is high.
func (l *Level) High() bool { return l.high }
