package overload

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

const (
	// MinForecast is the least multiplier of a forecast.
	MinForecast = 0.1
	// MaxForecast is the largest.
	MaxForecast = 10.0
	// MaxForecastAge is for how long a forecast may hold.
	MaxForecastAge = time.Minute
	// maxCaution is how much sooner and deeper a forecast lets the controller cut.
	maxCaution = 1.05
)

// forecast is what somebody outside expects: times the present load, until when.
type forecast struct {
	times atomic.Uint64 // Float64bits
	until atomic.Int64
}

// Forecast tells that the load will be times what it is, from now for at most age. It may prepare: Expected tells it
// to who opens connections or fills caches before, and a signal counts up to 5 % more while more load is expected. It
// never refuses by itself, as nothing is refused while the signals are below 0.95, and it never admits more. So one
// that is wrong, stuck or hostile costs no more than that. What is out of range is an error that wraps ErrConfig, and
// ends the forecast before it. Any goroutine.
func (c *Controller) Forecast(now time.Duration, times float64, age time.Duration) error {
	if !(times >= MinForecast && times <= MaxForecast) || age <= 0 || age > MaxForecastAge {
		c.fc.until.Store(math.MinInt64)
		return fmt.Errorf("%w: forecast of %v times the load for %v, want %v to %v for up to %v",
			ErrConfig, times, age, MinForecast, MaxForecast, MaxForecastAge)
	}
	c.fc.times.Store(math.Float64bits(times))
	c.fc.until.Store(int64(now + age))
	return nil
}

// Expected returns the multiplier of the latest forecast, 1 when there is none that holds at now. Any goroutine.
func (c *Controller) Expected(now time.Duration) float64 {
	if int64(now) >= c.fc.until.Load() {
		return 1
	}
	return math.Float64frombits(c.fc.times.Load())
}

// caution is by how much signals count more.
func (c *Controller) caution(now time.Duration) float64 {
	return min(max(1+(c.Expected(now)-1)/20, 1), maxCaution)
}
