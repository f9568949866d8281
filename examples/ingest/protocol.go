package main

import (
	"github.com/weirnet/weir/examples/ingest/internal/decode"
	"github.com/weirnet/weir/handlers/codec"
)

// protocol is what clients of a listener speak.
type protocol struct {
	name    string
	about   string
	address string // by default
	decoder decode.Decoder
	framer  func(maxBytes int) (*codec.Framer, error)
}

// protocols returns all that there are.
func protocols() []protocol {
	return []protocol{
		{
			name: "syslog", about: "syslog over TCP (RFC 6587: counted, or lines; RFC 5424 and 3164)", address: "127.0.0.1:5514",
			decoder: decode.NewSyslog(nil, nil),
			framer: func(maxBytes int) (*codec.Framer, error) {
				return codec.NewOctetCounting(codec.OctetCountingConfig{
					MaxBytes: maxBytes, FinalLine: true,
					Resync: true,
				})
			},
		},
		{
			name: "graphite", about: "Graphite's plaintext protocol", address: "127.0.0.1:2003",
			decoder: decode.Graphite{}, framer: lines,
		},
		{
			name: "statsd", about: "statsd over TCP", address: "127.0.0.1:8125",
			decoder: decode.Statsd{}, framer: lines,
		},
		{
			name: "json", about: "JSON behind its length in four bytes, big endian", address: "127.0.0.1:5170",
			decoder: decode.JSON{},
			framer: func(maxBytes int) (*codec.Framer, error) {
				const width = 4
				return codec.NewLengthField(codec.LengthFieldConfig{
					Width: width, Strip: width,
					MaxBytes: maxBytes + width,
				})
			},
		},
	}
}

func lines(maxBytes int) (*codec.Framer, error) {
	return codec.NewLines(codec.LinesConfig{MaxBytes: maxBytes})
}
