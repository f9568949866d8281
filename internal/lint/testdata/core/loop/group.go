//weir:goroutines starts the loops

package loop

import "time"

func start(m map[int]int) {
	go func() {
		time.Sleep(1)
		select {}
	}()
	for range m { // want "iteration over a map"
	}
}
