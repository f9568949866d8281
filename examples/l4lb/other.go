//go:build !linux

// L4lb needs Linux.
package main

import "log"

func main() { log.Fatal("l4lb: it needs Linux") }
