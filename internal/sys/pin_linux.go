package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// PinThread binds the calling thread to the index-th of the processors that the process may use, counted round
// (sched_setaffinity(2)). The caller has locked its goroutine to the thread.
func PinThread(index int) error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("sys: sched_getaffinity: %w", err)
	}
	n := allowed.Count()
	if n == 0 {
		return fmt.Errorf("sys: pin thread %d: no processor allowed", index)
	}
	skip := index % n
	for cpu := 0; ; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("sys: pin thread %d to processor %d: %w", index, cpu, err)
		}
		return nil
	}
}
