//go:build !linux

package sys

import "fmt"

// PinThread is not supported here.
func PinThread(index int) error {
	return fmt.Errorf("sys: pin thread %d: not supported on this system", index)
}
