package flow_test

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/flow"
)

// A writer stops when 100 bytes are pending and goes on when 40 are left.
func ExampleLevel() {
	level, err := flow.NewLevel(flow.LevelConfig{High: 100, Low: 40})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range []int{60, 60, 60, -50, -50, -50} {
		fmt.Printf("%+d: %s at %d\n", n, level.Add(n), level.Value())
	}
	// Output:
	// +60: stayed at 60
	// +60: rose at 120
	// +60: stayed at 180
	// -50: stayed at 130
	// -50: stayed at 80
	// -50: fell at 30
}

// A reader may read 1024 bytes a second.
func ExampleTokenBucket() {
	bucket, err := flow.NewTokenBucket(flow.TokenBucketConfig{Rate: 1024}, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Duration(0)
	fmt.Println(bucket.Take(now, 600))
	fmt.Println(bucket.Take(now, 600))
	fmt.Println(bucket.Take(now, 600), "ask again in", bucket.Wait(now, 512))
	now += time.Second
	fmt.Println(bucket.Take(now, 800))
	// Output:
	// 600
	// 424
	// 0 ask again in 500ms
	// 800
}

// Attempts to connect become rarer until one succeeds.
func ExampleBackoff() {
	backoff, err := flow.NewBackoff(flow.BackoffConfig{Initial: time.Second, Max: 5 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(backoff.Next(), backoff.Next(), backoff.Next(), backoff.Next())
	backoff.Reset()
	fmt.Println(backoff.Next())
	// Output:
	// 1s 2s 4s 5s
	// 1s
}
