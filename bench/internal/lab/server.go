//go:build linux

package lab

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Spec is a server that can be started.
type Spec struct {
	Name    string
	Program string
	Args    []string
	Mode    string // instead of Setting.Mode
	Procs   int    // GOMAXPROCS, instead of Setting.Procs
	Go      bool   // has GOMAXPROCS
	Peer    bool   // a framework, or package net, that weir is compared with
	Loop    bool   // an event loop: an idle connection costs no goroutine
	Proxy   bool   // has that mode
	Weir    bool
}

// beforeSuffix marks a server of weir that another checkout was built into.
const beforeSuffix = "-before"

// Before is the same server of the checkout that BuildBefore has built.
func (s Spec) Before() Spec {
	s.Name += beforeSuffix
	s.Program += beforeSuffix
	return s
}

// Specs are all servers of the comparison: weir, its peers, and what the machine allows.
func Specs() []Spec {
	return []Spec{
		{
			Name: "weir-uring", Program: "weir", Args: []string{"-transport", "uring"}, Go: true, Loop: true, Proxy: true,
			Weir: true,
		},
		{
			Name: "weir-epoll", Program: "weir", Args: []string{"-transport", "epoll"}, Go: true, Loop: true, Proxy: true,
			Weir: true,
		},
		{Name: "gnet", Program: "gnet", Go: true, Peer: true, Loop: true},
		{Name: "netpoll", Program: "netpoll", Go: true, Peer: true, Loop: true},
		{Name: "nbio", Program: "nbio", Go: true, Peer: true, Loop: true},
		{Name: "net", Program: "net", Go: true, Peer: true, Proxy: true},
		{Name: "c-epoll", Program: "c-epoll", Loop: true},
		{Name: "c-uring", Program: "c-uring", Loop: true},
	}
}

// Setting is how a server is started.
type Setting struct {
	Mode    string // see package serve
	Loops   int
	CPU     int // or Anywhere
	Procs   int // GOMAXPROCS; 0: as many as loops, and one more for weir, whose loops wait raw only then
	Backend string
	Profile string // file for a CPU profile; "": none
}

// Server is a running server.
type Server struct {
	*Process
	Spec    Spec
	Address string
}

// StartServer starts a server of programs in dir and waits until it listens.
func StartServer(dir string, spec Spec, at Setting) (*Server, error) {
	args := append([]string{"-mode", cmp.Or(spec.Mode, at.Mode), "-loops", strconv.Itoa(at.Loops)}, spec.Args...)
	if at.Backend != "" {
		args = append(args, "-backend", at.Backend)
	}
	if at.Profile != "" && spec.Go {
		args = append(args, "-cpuprofile", at.Profile)
	}
	procs := cmp.Or(spec.Procs, at.Procs)
	if procs == 0 {
		procs = at.Loops
		if spec.Weir {
			procs++
		}
	}
	p, err := Start(spec.Name, at.CPU, []string{"GOMAXPROCS=" + strconv.Itoa(procs)}, filepath.Join(dir, spec.Program),
		args...)
	if err != nil {
		return nil, err
	}
	for {
		line, err := p.Line()
		if err != nil {
			_ = p.Stop() // what went wrong is known already
			return nil, fmt.Errorf("lab: start of %s: %w", spec.Name, err)
		}
		if address, ok := strings.CutPrefix(line, "listening "); ok {
			return &Server{Process: p, Spec: spec, Address: address}, nil
		}
	}
}
