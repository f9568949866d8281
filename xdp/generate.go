package xdp

//go:generate bash bpf/generate xdp entry
