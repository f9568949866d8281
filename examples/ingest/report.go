package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
)

// report is what the server has counted by a moment.
type report struct {
	Seconds    float64 `json:"seconds"`
	Level      string  `json:"level"`
	Rises      uint64  `json:"rises"` // how often the level became high
	Open       int64   `json:"open"`
	Paused     int64   `json:"paused"`
	Pending    int64   `json:"pending"`  // bytes being decoded or queued
	Reserved   int64   `json:"reserved"` // bytes that reads under way may bring
	Queued     uint64  `json:"queued"`   // frames given to the sink so far
	Delivered  uint64  `json:"delivered"`
	Bytes      uint64  `json:"deliveredBytes"`
	Malformed  uint64  `json:"malformed"`
	Dropped    uint64  `json:"dropped"`
	Lost       uint64  `json:"lost"`
	Rejected   uint64  `json:"rejected"` // by the sink, for good
	TooLong    uint64  `json:"tooLong"`
	Truncated  uint64  `json:"truncated"`
	Failed     uint64  `json:"failed"` // clients closed with an error
	RSS        int64   `json:"rss"`
	LagMicros  int64   `json:"lagMicros"`    // p99 since the last report
	LagTotal   int64   `json:"lagAllMicros"` // p99 of all
	SinkError  string  `json:"sinkError,omitempty"`
	MostQueued int     `json:"mostQueued"`
}

func (s *server) report(since time.Time) report {
	stats := s.queue.Stats()
	all, piece := s.lag.p99()
	r := report{
		Seconds: time.Since(since).Seconds(), Level: "NORMAL", Rises: s.level.Rises(),
		Pending: s.level.Value(), Reserved: s.level.ReservedBytes(), Delivered: stats.DeliveredRecords,
		Bytes: stats.DeliveredBytes, RSS: rss(), LagMicros: piece.Microseconds(), LagTotal: all.Microseconds(),
		MostQueued: stats.MostQueuedBytes, Rejected: stats.RejectedRecords,
	}
	if s.level.High() {
		r.Level = "HIGH"
	}
	if stats.Failing != nil {
		r.SinkError = stats.Failing.Error()
	}
	for _, l := range s.listeners {
		c := &l.counters
		r.Open += c.open.Load()
		r.Paused += c.paused.Load()
		r.Queued += c.queued.Load()
		r.Malformed += c.malformed.Load()
		r.Dropped += l.dropped()
		r.Lost += c.lost.Load()
		r.TooLong += c.tooLong.Load()
		r.Truncated += c.truncated.Load()
		r.Failed += c.failed.Load()
	}
	return r
}

// end is what is said last.
func (r report) end() string {
	text := fmt.Sprintf("delivered %d of %d, dropped %d, lost %d", r.Delivered, r.Queued+r.Lost+r.Dropped, r.Dropped,
		r.Lost)
	for _, c := range []struct {
		count uint64
		what  string
	}{{r.Rejected, "rejected"}, {r.Malformed, "malformed"}, {r.TooLong, "too long"}, {r.Truncated, "truncated"}} {
		if c.count > 0 {
			text += fmt.Sprintf(", %d %s", c.count, c.what)
		}
	}
	return text
}

// printer prints reports, one a line. It belongs to one goroutine.
type printer struct {
	out   io.Writer
	json  bool
	last  report
	lines int
}

func (p *printer) print(r report) {
	if p.json {
		line, err := json.Marshal(r)
		if err == nil {
			_, _ = fmt.Fprintf(p.out, "%s\n", line)
		}
		return
	}
	if p.lines%20 == 0 {
		_, _ = fmt.Fprintf(p.out, "%5s %9s %9s %-7s %6s %6s %9s %9s %9s %9s\n",
			"s", "in/s", "out/s", "level", "open", "paused", "dropped", "pending", "RSS", "lag p99")
	}
	p.lines++
	seconds := max(r.Seconds-p.last.Seconds, 0.001)
	per := func(now, before uint64) string { return humanize.Comma(int64(float64(now-before) / seconds)) }
	_, _ = fmt.Fprintf(p.out, "%5.1f %9s %9s %-7s %6d %6d %9s %9s %9s %9v", r.Seconds,
		per(r.Queued+r.Dropped, p.last.Queued+p.last.Dropped), per(r.Delivered,
			p.last.Delivered), r.Level, r.Open, r.Paused,
		humanize.Comma(int64(r.Dropped)), humanize.IBytes(uint64(max(r.Pending, 0))), humanize.IBytes(uint64(r.RSS)),
		time.Duration(r.LagMicros)*time.Microsecond)
	if r.SinkError != "" {
		_, _ = fmt.Fprintf(p.out, "  sink: %s", r.SinkError)
	}
	_, _ = fmt.Fprintln(p.out)
	p.last = r
}

// rss is the memory of this process that is resident; 0 where /proc does not tell.
func rss() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(statm)
	const resident = 1
	if len(fields) <= resident {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[resident]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
