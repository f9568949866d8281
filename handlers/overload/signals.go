package overload

import (
	"runtime/metrics"
	"time"
)

// Share is a signal of a level against its bound: used(now)/bound, from usable on. Below usable, a part of the bound,
// it is 0, above it goes from 0 to 1 in a straight line to the bound: memory that is half full is no risk at all. It
// is for memory, requests in flight, downstream backlog or entries of a ring.
func Share(name string, bound, usable float64, used func() float64) Signal {
	return Signal{Name: name, Read: func(time.Duration) float64 {
		part := used() / bound
		if usable <= 0 || usable >= 1 {
			return part
		}
		return (part - usable) / (1 - usable)
	}}
}

// Wait is a signal of a time against its target: how long requests wait, or how late the loop is.
func Wait(name string, target time.Duration, waited func() time.Duration) Signal {
	return Signal{Name: name, Read: func(time.Duration) float64 { return float64(waited()) / float64(target) }}
}

// GC is a signal of the part of the processors' time that the garbage collector takes, against bound, as 0.25: what
// runtime/metrics counts, between two looks.
func GC(bound float64) Signal {
	samples := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"}}
	var gc, total float64
	return Signal{Name: "gc", Read: func(time.Duration) float64 {
		metrics.Read(samples)
		if samples[0].Value.Kind() != metrics.KindFloat64 || samples[1].Value.Kind() != metrics.KindFloat64 {
			return 0
		}
		nowGC, nowTotal := samples[0].Value.Float64(), samples[1].Value.Float64()
		part := 0.0
		if nowTotal > total { // the runtime brings them up to date at each collection
			part = (nowGC - gc) / (nowTotal - total) / bound
		}
		gc, total = nowGC, nowTotal
		return part
	}}
}
