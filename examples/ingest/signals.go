package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signals are what the process is told. SIGHUP never ends it. The first SIGINT or SIGTERM ends it when all is
// delivered, the second when it has said what is not; the third has its default effect.
type signals struct {
	first, second context.Context
	hangup        <-chan os.Signal
}

// catchSignals catches them from now on.
func catchSignals() *signals {
	hangup, ends := make(chan os.Signal, 1), make(chan os.Signal, 2)
	signal.Notify(hangup, syscall.SIGHUP)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	first, drain := context.WithCancel(context.Background())
	second, giveUp := context.WithCancel(context.Background())
	go func() {
		<-ends
		drain()
		<-ends
		giveUp()
		signal.Stop(ends)
	}()
	return &signals{first, second, hangup}
}
