package weir

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pinThread binds the calling thread to the index-th of the processors that the process may use, counted round.
func pinThread(index int) error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("weir: pin: sched_getaffinity: %w", err)
	}
	n := allowed.Count()
	if n == 0 {
		return fmt.Errorf("weir: pin: no processor allowed")
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
			return fmt.Errorf("weir: pin to processor %d: %w", cpu, err)
		}
		return nil
	}
}
