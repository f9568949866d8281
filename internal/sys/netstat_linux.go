package sys

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ReadNetstat returns counters of TCP by their names in the process's network namespace (proc_net(5),
// /proc/net/netstat), zero for a name that this kernel does not have.
func ReadNetstat(names ...string) ([]uint64, error) {
	text, err := os.ReadFile("/proc/self/net/netstat")
	if err != nil {
		return nil, fmt.Errorf("sys: counters of the network: %w", err)
	}
	return parseNetstat(string(text), names)
}

// parseNetstat finds counters in pairs of lines: one of names, one of values, both behind the name of their group.
func parseNetstat(text string, names []string) ([]uint64, error) {
	values := make([]uint64, len(names))
	var heads []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "TcpExt:" {
			continue
		}
		if heads == nil {
			heads = fields
			continue
		}
		if len(fields) != len(heads) {
			return nil, fmt.Errorf("sys: counters of the network: %d names, %d values", len(heads), len(fields))
		}
		for i, name := range names {
			if at := slices.Index(heads, name); at > 0 {
				n, err := strconv.ParseUint(fields[at], 10, 64)
				if err != nil {
					return nil, fmt.Errorf("sys: counters of the network: %s: %w", name, err)
				}
				values[i] = n
			}
		}
		return values, nil
	}
	return nil, fmt.Errorf("sys: counters of the network: no TcpExt")
}
