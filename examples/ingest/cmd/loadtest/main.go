//go:build linux

// Loadtest measures the ingest server under load: thousands of clients that send at full speed into a sink that takes
// 20 MB/s. It builds the server and runs it as a process of its own, is the clients itself, and prints a table of what
// was wanted and what was. Fairness is counted in the sink's files: the last frame of each client. They take 20 MB a
// second of the temporary directory until it ends. Run it inside the source tree, on a machine that does nothing else:
// go run ./examples/ingest/cmd/loadtest.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/weirnet/weir/examples/ingest/internal/load"
	"github.com/weirnet/weir/examples/ingest/internal/sink"
)

const (
	serverPackage = "github.com/weirnet/weir/examples/ingest"
	socketBytes   = 16 << 10
	dialRound     = 200
	batchBytes    = 4 << 10
)

// What is wanted.
const (
	wantRSS    = 300e6
	wantSpread = 2.0
	wantLag    = 20 * time.Millisecond
)

func main() {
	connections := flag.Int("connections", 10_000, "clients")
	duration := flag.Duration("duration", 120*time.Second, "how long to send")
	warmup := flag.Duration("warm-up", 10*time.Second, "how long to let them send before, when all are there")
	sinkRate := flag.String("sink-rate", "20MB", "bytes a second that the sink takes")
	transport := flag.String("transport", "auto", "auto, epoll or uring")
	low := flag.String("low", "63MiB", "the server's -low: near to -high, clients take turns often")
	padding := flag.Int("padding", 100, "bytes of padding in each frame")
	memory := flag.String("memory", "200MiB", "the server's -memory")
	flag.Parse()
	if err := run(*connections, *warmup, *duration, *sinkRate, *transport, *memory, *low, *padding); err != nil {
		log.Fatal(err)
	}
}

// sample is what we read of the server's reports.
type sample struct {
	Seconds   float64 `json:"seconds"`
	Level     string  `json:"level"`
	Rises     uint64  `json:"rises"`
	Open      int64   `json:"open"`
	Paused    int64   `json:"paused"`
	Pending   int64   `json:"pending"`
	Reserved  int64   `json:"reserved"`
	Delivered uint64  `json:"delivered"`
	Bytes     uint64  `json:"deliveredBytes"`
	Lost      uint64  `json:"lost"`
	Malformed uint64  `json:"malformed"`
	RSS       int64   `json:"rss"`
	LagMicros int64   `json:"lagMicros"`
	LagTotal  int64   `json:"lagAllMicros"`
}

func run(connections int, warmup, duration time.Duration, sinkRate, transport, memory, low string, padding int) error {
	dir, err := os.MkdirTemp("", "weir-loadtest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "ingest")
	if out, err := exec.Command("go", "build", "-o", binary, serverPackage).CombinedOutput(); err != nil {
		return fmt.Errorf("loadtest: build: %w: %s", err, out)
	}
	lines := filepath.Join(dir, "lines")
	server := exec.Command(binary, "-syslog", "127.0.0.1:0", "-graphite=", "-statsd=", "-json=", "-sink", lines,
		"-sink-rate", sinkRate, "-sync", "never", "-high", "64MiB", "-low", low, "-grant", "4KiB", "-batch", "4KiB",
		"-inflight", "2", "-rcvbuf", fmt.Sprint(socketBytes), "-memory", memory, "-transport", transport,
		"-stats", "1s", "-stats-json",
		"-drain", "20s")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() { _ = server.Process.Kill() }()
	reports := bufio.NewScanner(out)
	address := ""
	for reports.Scan() && !strings.HasPrefix(reports.Text(), "into ") {
		if fields := strings.Fields(reports.Text()); len(fields) > 2 && fields[0] == "syslog" {
			address = fields[2]
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	connect(ctx, address, connections, padding)
	before, all, counts := []uint64(nil), []sample(nil), []uint64(nil)
	if watch(reports, connections, warmup) != nil { // the first ones have filled the queue while the others connected
		before, err = delivered(lines, connections)
	}
	if err == nil && before != nil {
		all = watch(reports, connections, duration)
		counts, err = delivered(lines, connections) // what the sink has by now, and only then the end
	}
	cancel()
	_ = server.Process.Kill() // the clients are in the middle of writes that block
	_ = server.Wait()
	if err != nil {
		return err
	}
	for i := range counts {
		counts[i] -= min(before[i], counts[i])
	}
	return table(all, counts, connections)
}

// connect starts the clients, some at a time: the listen queue is finite.
func connect(ctx context.Context, address string, connections, padding int) {
	for i := range connections {
		c := &load.Client{
			Address: address, Format: load.SyslogCounted, Number: uint64(i), PaddingBytes: padding, BatchBytes: batchBytes,
			SendBufferBytes: socketBytes,
		}
		go func() { _ = c.Run(ctx) }() // ends with the server
		if i%dialRound == dialRound-1 {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// watch collects reports from the moment when all clients are there, for a time, and prints some.
func watch(reports *bufio.Scanner, connections int, duration time.Duration) (all []sample) {
	for reports.Scan() {
		var s sample
		if json.Unmarshal(reports.Bytes(), &s) != nil {
			continue
		}
		if len(all) == 0 && s.Open < int64(connections) {
			if s.Seconds > duration.Seconds() {
				return nil // they never all came
			}
			continue
		}
		if len(all)%10 == 0 {
			fmt.Printf("%6.1f s  %-6s  paused %6d  pending %9s  reserved %9s  RSS %9s  delivered %11s  lag p99 %v\n",
				s.Seconds, s.Level, s.Paused,
				humanize.IBytes(uint64(max(s.Pending, 0))), humanize.IBytes(uint64(max(s.Reserved, 0))),
				humanize.Bytes(uint64(s.RSS)),
				humanize.Comma(int64(s.Delivered)), time.Duration(s.LagMicros)*time.Microsecond)
		}
		all = append(all, s)
		if s.Seconds-all[0].Seconds >= duration.Seconds() {
			return all
		}
	}
	return all
}

// delivered returns how many frames of each client the sink has: those up to the last one in the files.
func delivered(dir string, connections int) ([]uint64, error) {
	names, err := sink.Files(dir)
	if err != nil {
		return nil, err
	}
	counts := make([]uint64, connections)
	for _, name := range names {
		if err := lastFrames(name, counts); err != nil && !errors.Is(err, os.ErrNotExist) { // it may have been removed
			return nil, err
		}
	}
	return counts, nil
}

func lastFrames(name string, counts []uint64) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewReaderSize(file, 1<<20); ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return nil // the end, or a line that is just being written
		}
		connection, sequence, ok := position(line)
		if !ok {
			return fmt.Errorf("%s: %w: %.200q", name, load.ErrMark, line)
		}
		if connection < uint64(len(counts)) {
			counts[connection] = max(counts[connection], sequence+1)
		}
	}
}

// position reads the numbers in a mark without checking the sum: there are millions of lines.
func position(line []byte) (connection, sequence uint64, ok bool) {
	_, rest, found := bytes.Cut(line, []byte(`"message":"c`))
	c, rest, dot := bytes.Cut(rest, []byte(".s"))
	s, _, end := bytes.Cut(rest, []byte(".k"))
	connection, err1 := strconv.ParseUint(string(c), 10, 64)
	sequence, err2 := strconv.ParseUint(string(s), 10, 64)
	return connection, sequence, found && dot && end && err1 == nil && err2 == nil
}

// quantiles returns the least, 0.1 %, 1 %, 50 %, 99 % and most of sorted counts.
func quantiles(counts []uint64) (q []uint64) {
	last := float64(len(counts) - 1)
	for _, share := range []float64{0, 0.001, 0.01, 0.5, 0.99, 1} {
		q = append(q, counts[int(share*last)])
	}
	return q
}

// table prints what was wanted and what was.
func table(all []sample, counts []uint64, connections int) error {
	if len(all) < 2 {
		return errors.New("loadtest: the clients have not all come")
	}
	first, last := all[0], all[len(all)-1]
	var rss, pending, reserved int64
	var lags []int64
	for _, s := range all {
		rss, pending, reserved = max(rss, s.RSS), max(pending, s.Pending), max(reserved, s.Reserved)
		lags = append(lags, s.LagMicros)
	}
	slices.Sort(lags)
	slices.Sort(counts)
	seconds := last.Seconds - first.Seconds
	spread := float64(counts[len(counts)-1]) / float64(max(counts[0], 1))
	lag := time.Duration(last.LagTotal) * time.Microsecond
	verdict := func(ok bool) string {
		if ok {
			return "yes"
		}
		return "NO"
	}
	fmt.Printf("\n%-44s %14s %14s %s\n", fmt.Sprintf("%d clients, %.0f s", connections, seconds), "wanted", "was",
		"reached")
	fmt.Printf("%-44s %14s %14s\n", "sink, MB/s", "", fmt.Sprintf("%.1f", float64(last.Bytes-first.Bytes)/seconds/1e6))
	fmt.Printf("%-44s %14s %14s\n", "frames/s", "",
		humanize.Comma(int64(float64(last.Delivered-first.Delivered)/seconds)))
	fmt.Printf("%-44s %14s %14s %s\n", "RSS at most", "≤ 300 MB", humanize.Bytes(uint64(rss)), verdict(rss <= wantRSS))
	fmt.Printf("%-44s %14s %14s %s\n", "delivered, most / least of a client", "≤ 2", fmt.Sprintf("%.2f", spread),
		verdict(spread <= wantSpread && counts[0] > 0))
	fmt.Printf("%-44s %s\n", "  frames of a client: least, 0.1 %, 1 %, 50 %, 99 %, most", fmt.Sprint(quantiles(counts)))
	fmt.Printf("%-44s %14s %14v %s\n", "loop lag p99, all the time", "≤ 20 ms", lag, verdict(lag <= wantLag))
	fmt.Printf("%-44s %14s %14v\n", "loop lag p99, worst second", "", time.Duration(lags[len(lags)-1])*time.Microsecond)
	fmt.Printf("%-44s %14s %14s\n", "pending at most; reserved at most", "",
		humanize.IBytes(uint64(pending))+"; "+humanize.IBytes(uint64(reserved)))
	fmt.Printf("%-44s %14s %14d\n", "rises of the level", "", last.Rises-first.Rises)
	fmt.Printf("%-44s %14s %14d\n", "frames lost or malformed", "0", last.Lost+last.Malformed)
	return nil
}
