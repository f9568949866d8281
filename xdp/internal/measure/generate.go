// Package measure runs a program of xdp many times on a frame, with clients that vary, and says what it takes.
package measure

//go:generate bash ../../bpf/generate measure measure xdp_md
