//go:build race

package fieldtest

// raceDetector tells that the race detector slows everything down.
const raceDetector = true
