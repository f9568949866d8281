//go:build !linux

package transporttest

// socketClaims are about descriptors, which only Linux transports have.
func socketClaims() []claim { return nil }
