package epoll

import "time"

func f(m map[int]int) {
	_ = time.Now() // want "time.Now uses the real clock"
	for range m {
	}
	go f(m)
}
