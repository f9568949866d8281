package testenv

import (
	"fmt"
	"reflect"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// DenyCalls makes the given system calls of this process fail with errno, for good and on all threads, as container
// runtimes do (seccomp(2)). Use it in a process of its own.
func DenyCalls(errno syscall.Errno, calls ...uint32) error {
	const loadNumber = 0 // offset of nr in struct seccomp_data
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: loadNumber}}
	for _, call := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: call},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("testenv: prctl no_new_privs: %w", err)
	}
	// The kernel reads the program during the call only.
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		reflect.ValueOf(&program).Pointer())
	runtime.KeepAlive(&program)
	if failed != 0 {
		return fmt.Errorf("testenv: seccomp filter of %d calls: %w", len(calls), failed)
	}
	return nil
}
