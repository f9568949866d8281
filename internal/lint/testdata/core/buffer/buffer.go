package buffer

import (
	"context"
	"maps"
	"math/rand"
	randv2 "math/rand/v2"
	"slices"
	"sync"
	clock "time"
)

type set map[string]int

func times(ctx context.Context) {
	_ = clock.Now()                // want "time.Now uses the real clock"
	_ = clock.Since(clock.Time{})  // want "time.Since"
	now := clock.Now               // want "time.Now"
	clock.Sleep(clock.Millisecond) // want "time.Sleep"
	<-clock.After(1)               // want "time.After"
	clock.AfterFunc(1, func() {})  // want "time.AfterFunc"
	clock.NewTimer(1)              // want "time.NewTimer"
	clock.NewTicker(1)             // want "time.NewTicker"
	clock.Tick(1)                  // want "time.Tick"
	context.WithTimeout(ctx, 1)    // want "context.WithTimeout"
	_ = clock.Duration(1).String()
	_ = clock.Unix(1, 0)
	_ = now
	_ = clock.Now() //weir:goroutines a watchdog looks at real time
}

func random() {
	_ = rand.Int()     // want "math/rand.Int has no seed"
	_ = randv2.IntN(3) // want "math/rand/v2.IntN has no seed"
	_ = randv2.New(randv2.NewPCG(1, 2)).IntN(3)
}

func concurrent(c chan int) {
	go times(nil) // want "go statement"
	select {      // want "select statement"
	case <-c:
	default:
	}
	//weir:goroutines waits on the caller's goroutine
	select {
	case <-c:
	}
}

func order[M ~map[string]int](m map[string]int, s set, g M, list []int, sm *sync.Map) {
	for range m { // want "iteration over a map"
	}
	for k := range s { // want "iteration over a map"
		_ = k
	}
	for range g { // want "iteration over a map"
	}
	for range list {
	}
	for range 3 {
	}
	for k := range maps.Keys(m) { // want "maps.Keys has no order"
		_ = k
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		_ = k
	}
	_ = slices.Collect(maps.Values(m))            // want "maps.Values has no order"
	sm.Range(func(k, v any) bool { return true }) // want "Range has no order"
	for range m {                                 //weir:unordered only the number counts
	}
	//weir:unordered only the number counts
	for range m {
	}
}
