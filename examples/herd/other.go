//go:build !linux

// Herd needs Linux.
package main

import "log"

func main() { log.Fatal("herd: it needs Linux") }
