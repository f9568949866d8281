package sink

import "golang.org/x/sys/unix"

// maxFileBytes is how large a file of this process may become (getrlimit(2), RLIMIT_FSIZE).
func maxFileBytes() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) != nil {
		return 1<<64 - 1
	}
	return limit.Cur
}
