//go:build linux

package uring

import "flag"

var (
	flagSeed = flag.Uint64("seed", 0, "run the random tests with this seed only")
	flagLong = flag.Bool("long", false, "run the random tests and the conformance suite in all variants")
)
