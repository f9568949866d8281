package watermark

import (
	"errors"
	"fmt"
	"math"

	"github.com/weirnet/weir/flow"
)

var (
	// ErrConfig is the error of a configuration that cannot work; it is wrapped with the values.
	ErrConfig = errors.New("watermark: invalid configuration")
	// ErrOverLimit is the cause of a channel that was closed at OverLimit.
	ErrOverLimit = errors.New("watermark: hard limit exceeded")
	// ErrPlace is the error of an addition to a pipeline where it cannot work: a Handler that stands in another one
	// already, a DropGate or a Probe without its Handler before it.
	ErrPlace = errors.New("watermark: wrong place in the pipeline")
)

// Defaults of Config.
const (
	DefaultHighBytes   = 256 << 10
	DefaultBudgetBytes = 64 << 10
)

// Config configures a Handler. The zero value works. It is copied.
type Config struct {
	// HighBytes is where reading stops: at that much pending. Zero means 256 KiB.
	HighBytes int
	// LowBytes is where it goes on: at that much or less. 0 < LowBytes < HighBytes. Zero means a quarter of HighBytes.
	LowBytes int
	// HardLimitBytes is where the channel is closed: when more is pending and yet something else is written. It must be
	// above HighBytes, and below MaxPendingBytes of the channel. Zero means four times HighBytes.
	HardLimitBytes int
	// MaxPendingBytes is that of the channel's own Config, to have it compared with HardLimitBytes. Zero compares nothing.
	MaxPendingBytes int

	// BudgetBytes is how much may be read at a time; half of it from half of HighBytes on. Zero means 64 KiB.
	BudgetBytes int
	// RateBytesPerSecond bounds what is read in the long run. Zero means no bound.
	RateBytesPerSecond int64
	// BurstBytes is how much may be read at once after a while of silence, where there is a rate. Zero means what a second
	// allows.
	BurstBytes int64

	// Shared are levels that other channels fill, too. While one of them is high, this one is.
	Shared []*Shared
	// KeepReading leaves reading on at High: a DropGate drops whole frames instead, for traffic that tolerates loss. The
	// rate is then the DropGate's business, too.
	KeepReading bool
	// Stats count for all channels that are given the same. Nil means some of this channel's own.
	Stats *Stats
}

// Validate returns an error, wrapping ErrConfig, that names the first setting that cannot work.
func (cfg *Config) Validate() error {
	_, _, err := cfg.settle()
	return err
}

// settle fills in the defaults and makes what is made of the settings.
func (cfg *Config) settle() (Config, flow.Level, error) {
	d := *cfg
	if d.HighBytes == 0 {
		d.HighBytes = DefaultHighBytes
	}
	if d.LowBytes == 0 {
		d.LowBytes = d.HighBytes / 4
	}
	if d.HardLimitBytes == 0 && d.HighBytes <= math.MaxInt/4 {
		d.HardLimitBytes = 4 * d.HighBytes
	}
	if d.BudgetBytes == 0 {
		d.BudgetBytes = DefaultBudgetBytes
	}
	level, err := flow.NewLevel(flow.LevelConfig{High: d.HighBytes, Low: d.LowBytes})
	if err != nil || d.HighBytes >= d.HardLimitBytes {
		return d, level, fmt.Errorf("watermark: marks %d, %d, %d, want 0 < low < high < hard: %w",
			d.LowBytes, d.HighBytes, d.HardLimitBytes, ErrConfig)
	}
	if d.MaxPendingBytes != 0 && d.MaxPendingBytes <= d.HardLimitBytes {
		return d, level, fmt.Errorf("watermark: the channel's MaxPendingBytes %d must be above HardLimitBytes %d: %w",
			d.MaxPendingBytes, d.HardLimitBytes, ErrConfig)
	}
	if d.BudgetBytes < 0 || d.BurstBytes < 0 || d.HardLimitBytes == math.MaxInt {
		return d, level, fmt.Errorf("watermark: budget %d, burst %d, hard limit %d: %w",
			d.BudgetBytes, d.BurstBytes, d.HardLimitBytes, ErrConfig)
	}
	if d.RateBytesPerSecond < 0 || d.RateBytesPerSecond == 0 && d.BurstBytes > 0 {
		return d, level, fmt.Errorf("watermark: rate %d with burst %d, want a rate above 0, or neither: %w",
			d.RateBytesPerSecond, d.BurstBytes, ErrConfig)
	}
	for i, s := range d.Shared {
		if s == nil {
			return d, level, fmt.Errorf("watermark: shared level %d is nil: %w", i, ErrConfig)
		}
	}
	return d, level, nil
}
