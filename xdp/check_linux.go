package xdp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// Check reports why programs can't be attached: ErrPrivilege names the capabilities that the process lacks,
// ErrUnsupported is about the kernel. CAP_BPF and CAP_NET_ADMIN are asked for by bpf(2). Without CAP_PERFMON the
// verifier adds its mitigations against speculation, which refuse programs and make those that load three times as
// slow. CAP_SYS_ADMIN stands for all of them.
func Check() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("xdp: capget: %w", err)
	}
	effective := uint64(data[1].Effective)<<32 | uint64(data[0].Effective)
	if missing := lacks(effective); len(missing) > 0 {
		return fmt.Errorf("xdp: %s missing: %w", strings.Join(missing, ", "), ErrPrivilege)
	}
	// A process may be root of a user namespace, whose capabilities bpf(2) does not count.
	switch err := features.HaveProgramType(ebpf.XDP); {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("xdp: load a program: %w: %w", err, ErrPrivilege)
	case err != nil:
		return fmt.Errorf("xdp: load a program: %w: %w", err, ErrUnsupported)
	}
	return nil
}

// lacks names the capabilities that are missing in a set.
func lacks(effective uint64) (missing []string) {
	has := func(capability int) bool { return effective&(1<<capability) != 0 }
	if has(unix.CAP_SYS_ADMIN) {
		return nil
	}
	for _, c := range []struct {
		number int
		name   string
	}{
		{unix.CAP_BPF, "CAP_BPF"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_PERFMON, "CAP_PERFMON"},
	} {
		if !has(c.number) {
			missing = append(missing, c.name)
		}
	}
	return missing
}
