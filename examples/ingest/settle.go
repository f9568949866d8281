package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/examples/ingest/internal/sink"
)

// What the flags may say at most.
const (
	maxFrameBytes = 1<<30 - 4 // a framer's limit, and the length before a frame of JSON
	maxInFlight   = 1024
	maxThreads    = 4096 // loops, workers
	maxSocket     = 1 << 30
)

// settle fills in what depends on other settings, and refuses what cannot work. An error names the flag and its value.
func (cfg *config) settle() error {
	if cfg.low == 0 {
		cfg.low = cfg.high / 2
	}
	if cfg.most == 0 {
		cfg.most = 4 * cfg.high
	}
	if cfg.workers == 0 {
		cfg.workers = runtime.GOMAXPROCS(0)
	}
	if cfg.low <= 0 || cfg.low >= cfg.high || cfg.high >= cfg.most {
		return fmt.Errorf("%w: -low %v, -high %v, -most %v: want 0 < low < high < most", errConfig, &cfg.low, &cfg.high,
			&cfg.most)
	}
	kinds := []weir.Kind{weir.Auto, weir.Epoll, weir.Uring}
	syncs := []sink.Sync{sink.SyncAlways, sink.SyncInterval, sink.SyncNever}
	for _, rule := range []struct {
		flag  string
		value any
		ok    bool
		want  string
	}{
		{"transport", cfg.transport, slices.Contains(kinds, cfg.transport), "auto, epoll or uring"},
		{"loops", cfg.loops, cfg.loops >= 0 && cfg.loops <= maxThreads, "0 to 4096"},
		{"workers", cfg.workers, cfg.workers > 0 && cfg.workers <= maxThreads, "0 to 4096"},
		{"frame", &cfg.frame, cfg.frame > 0 && cfg.frame <= maxFrameBytes, "1 to 1GiB less 4 bytes"},
		{"grant", &cfg.grant, cfg.grant > 0 && cfg.grant <= maxSocket, "1 to 1GiB"},
		{"batch", &cfg.batch, cfg.batch > 0, "more than 0"},
		{"inflight", cfg.inFlight, cfg.inFlight > 0 && cfg.inFlight <= maxInFlight, "1 to 1024"},
		{"rcvbuf", &cfg.receiveBuffer, cfg.receiveBuffer <= maxSocket, "1GiB at most"},
		{"gone", cfg.pausedClose, cfg.pausedClose > 0, "more than 0"},
		{"drain", cfg.drain, cfg.drain >= 0, "0 or more"},
		{"stats", cfg.stats, cfg.stats >= 0, "0 or more"},
		{"store", &cfg.store, cfg.store > 0 && cfg.store <= cfg.most, "more than 0, and -most at most"},
		{"file-size", &cfg.fileSize, cfg.fileSize > 0, "more than 0"},
		{"file-keep", cfg.fileKeep, cfg.fileKeep >= 0, "0 or more"},
		{"sync", cfg.sync, slices.Contains(syncs, sink.Sync(cfg.sync)), "always, interval or never"},
		{"nats-message", &cfg.message, cfg.message > 0, "more than 0"},
	} {
		if !rule.ok {
			return fmt.Errorf("%w: -%s %v: want %s", errConfig, rule.flag, rule.value, rule.want)
		}
	}
	if cfg.isURL() {
		if err := sink.CheckURL(cfg.sink); err != nil {
			return fmt.Errorf("%w: -sink: want a directory or nats://host:port: %w", errConfig, err)
		}
	}
	return cfg.settleProtocols()
}

// settleProtocols checks what is said of protocols.
func (cfg *config) settleProtocols() error {
	var names []string
	listening := false
	for _, p := range protocols() {
		names = append(names, p.name)
		listening = listening || cfg.addresses[p.name] != ""
	}
	if !listening {
		return fmt.Errorf("%w: -%s are all empty: want an address for one", errConfig, strings.Join(names, ", -"))
	}
	for _, name := range cfg.lossyNames() {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%w: -lossy %q: %q is none of %s", errConfig, cfg.lossy, name, strings.Join(names, ", "))
		}
	}
	return nil
}

// lossyNames are the protocols that drop frames.
func (cfg *config) lossyNames() (names []string) {
	if cfg.lossy == "" {
		return nil
	}
	for name := range strings.SplitSeq(cfg.lossy, ",") {
		names = append(names, strings.TrimSpace(name))
	}
	return names
}

// isURL reports whether the sink is a URL and not a directory.
func (cfg *config) isURL() bool { return strings.Contains(cfg.sink, "://") }
