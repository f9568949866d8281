package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Where a classic BPF program reads the processor that runs it (linux/filter.h: SKF_AD_OFF + SKF_AD_CPU).
const skfCPU = 0xfffff000 + 36

// SteerByCPU makes the kernel choose among n listeners that share fd's port (SO_REUSEPORT) by the processor that
// handles the packet: the k-th of those that the process may use leads to listener k modulo n, in the order in which
// they began to listen; any other to that which a hash says. See socket(7), SO_ATTACH_REUSEPORT_CBPF.
func SteerByCPU(fd, n int) error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("sys: sched_getaffinity: %w", err)
	}
	if count := allowed.Count(); count < n {
		return fmt.Errorf("sys: steer by processor: %d listeners, %d processors: %w", n, count, unix.EINVAL)
	}
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: skfCPU}}
	for cpu, k := 0, 0; k < allowed.Count(); cpu++ {
		if allowed.IsSet(cpu) {
			filter = append(filter,
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(cpu), Jf: 1},
				unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(k % n)})
			k++
		}
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &program); err != nil {
		return fmt.Errorf("sys: SO_ATTACH_REUSEPORT_CBPF: %w", err)
	}
	return nil
}
