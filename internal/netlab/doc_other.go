//go:build !linux

// Package netlab makes small networks of namespaces, which only Linux has.
package netlab
