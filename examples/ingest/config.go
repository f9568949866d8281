package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/examples/ingest/internal/sink"
)

// errConfig is returned for settings that cannot work.
var errConfig = errors.New("ingest: bad configuration")

// config is what the flags say. Sizes are in bytes.
type config struct {
	addresses map[string]string // by protocol; empty: it does not listen
	lossy     string            // protocols, separated by commas
	transport weir.Kind
	loops     int

	high, low, most size // of the sink's queue
	frame           size
	grant           size
	rate            size // of a client, a second
	batch           size
	inFlight        int
	workers         int
	receiveBuffer   size
	pausedClose     time.Duration
	drain           time.Duration
	memory          size

	sink     string
	rejected string
	sinkRate size // a second
	store    size // a batch of the sink
	fileSize size
	fileKeep int
	sync     string
	stream   string
	subject  string
	message  size

	escape    bool
	stats     time.Duration
	statsJSON bool
	demo      bool
}

// size is a flag for a number of bytes: 4096, 64KiB, 20MB.
type size int64

// String is exact, and the shortest that Set understands.
func (s *size) String() string {
	n, unit := int64(*s), ""
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, next
	}
	return fmt.Sprint(n) + unit
}

// Set implements flag.Value.
func (s *size) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if err != nil {
		return errors.New("want a size such as 64MiB")
	}
	if n > 1<<40 {
		return errors.New("want 1TiB at most")
	}
	*s = size(n)
	return nil
}

// parseConfig reads the command line.
func parseConfig(args []string, output io.Writer) (*config, error) {
	cfg := &config{
		addresses: map[string]string{},
		high:      64 << 20, frame: 64 << 10, grant: 64 << 10, batch: 32 << 10, store: 256 << 10,
		fileSize: 64 << 20, message: 32 << 10,
	}
	flags := flag.NewFlagSet("ingest", flag.ContinueOnError)
	flags.SetOutput(output)
	addresses := map[string]*string{}
	for _, p := range protocols() {
		addresses[p.name] = flags.String(p.name, p.address, "`address` for "+p.about+"; empty: none")
	}
	flags.StringVar(&cfg.lossy, "lossy", "",
		"`protocols`, separated by commas, that drop frames instead of waiting for the sink")
	flags.StringVar((*string)(&cfg.transport), "transport", "auto", "auto, epoll or uring")
	flags.IntVar(&cfg.loops, "loops", 0, "number of event loops; 0: one per processor")

	flags.Var(&cfg.high, "high", "`bytes` waiting for the sink, of all clients, at which reading stops")
	flags.Var(&cfg.low, "low", "`bytes` at which reading goes on; 0: half of -high")
	flags.Var(&cfg.most, "most", "`bytes` that may wait at all: a client that brings more is closed; 0: four times -high")
	flags.Var(&cfg.frame, "frame", "`bytes` of the longest frame; longer ones are skipped and counted")
	flags.Var(&cfg.grant, "grant", "`bytes` that are read from a client at a time")
	flags.Var(&cfg.rate, "rate", "`bytes` a second that are read from a client; 0: no limit")
	flags.Var(&cfg.batch, "batch", "`bytes` of frames that are decoded together")
	flags.IntVar(&cfg.inFlight, "inflight", 4, "batches of a client that are decoded at a time")
	flags.IntVar(&cfg.workers, "workers", 0, "decoders that run at a time; 0: one per processor")
	flags.Var(&cfg.receiveBuffer, "rcvbuf", "`bytes` of a socket's receive buffer; 0: the kernel decides")
	flags.DurationVar(&cfg.pausedClose, "gone", time.Hour, "how long data of a client that has gone waits for the sink")
	flags.DurationVar(&cfg.drain, "drain", 10*time.Second, "how long to deliver what is there after SIGINT or SIGTERM")
	flags.Var(&cfg.memory, "memory", "`bytes` at which the garbage collector works harder; 0: no limit")

	flags.StringVar(&cfg.sink, "sink", "",
		"`where` lines go: a directory, or nats://host:port; empty: a temporary directory")
	flags.StringVar(&cfg.rejected, "rejected", "",
		"`where` records go that the sink will never take: a directory, or drop; empty: a temporary directory")
	flags.Var(&cfg.sinkRate, "sink-rate", "`bytes` a second that the sink takes, to see what happens; 0: no limit")
	flags.Var(&cfg.store, "store", "`bytes` that are stored at a time")
	flags.Var(&cfg.fileSize, "file-size", "`bytes` at which a new file is begun")
	flags.IntVar(&cfg.fileKeep, "file-keep", 0, "`files` to keep, of those that the server has made; 0: all")
	flags.StringVar(&cfg.sync, "sync", string(sink.SyncInterval),
		"when files are flushed to the disk: always, interval (1 s) or never")
	flags.StringVar(&cfg.stream, "nats-stream", "INGEST", "JetStream stream")
	flags.StringVar(&cfg.subject, "nats-subject", "ingest.lines", "subject of messages")
	flags.Var(&cfg.message, "nats-message", "`bytes` of lines in a message; 1: one line each")

	flags.BoolVar(&cfg.escape, "escape", true,
		"write DEL, C1 controls and changes of direction as escapes: files are safe to show on a terminal")
	flags.DurationVar(&cfg.stats, "stats", 0, "how often to print what is going on; 0: never")
	flags.BoolVar(&cfg.statsJSON, "stats-json", false, "print it as JSON")
	flags.BoolVar(&cfg.demo, "demo", false, "send load to itself for 15 s, with a sink that is slow for a while")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%w: what is %q?", errConfig, flags.Args())
	}
	for name, address := range addresses {
		cfg.addresses[name] = *address
	}
	return cfg, cfg.settle()
}
