package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/examples/ingest/internal/decode"
	"github.com/weirnet/weir/examples/ingest/internal/sink"
)

// dropRejected as -rejected drops what the sink will never take.
const dropRejected = "drop"

// openSink opens what the flags say.
func (s *server) openSink(logger *slog.Logger) error {
	cfg := s.cfg
	store, err := s.newStore(logger)
	if err != nil {
		return err
	}
	rejected, err := s.newRejected(logger)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	if s.throttle, err = sink.NewThrottle(store, int64(cfg.sinkRate)); err != nil {
		return err
	}
	s.queue, err = sink.NewQueue(s.throttle, sink.Config{
		MaxBytes: int(cfg.most), BatchBytes: int(cfg.store), Logger: logger, Rejected: rejected,
		Changed: func(n int) { s.level.Add(int64(n)) },
	})
	return err
}

func (s *server) newStore(logger *slog.Logger) (sink.Store, error) {
	if s.cfg.isURL() {
		return s.newNATS(logger)
	}
	s.where = s.cfg.sink
	if s.where == "" {
		dir, err := os.MkdirTemp("", "weir-ingest-")
		if err != nil {
			return nil, err
		}
		s.where = dir
	}
	s.where = filepath.Clean(s.where)
	return s.newFile(s.where, logger)
}

func (s *server) newFile(dir string, logger *slog.Logger) (sink.Store, error) {
	cfg := s.cfg
	f, err := sink.NewFile(sink.FileConfig{
		Dir: dir, MaxBytes: int64(cfg.fileSize), Keep: cfg.fileKeep, Sync: sink.Sync(cfg.sync), Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, f)
	return f, nil
}

// newNATS looks at the server once. What cannot work ends the start; what can pass is said.
func (s *server) newNATS(logger *slog.Logger) (sink.Store, error) {
	cfg := s.cfg
	s.where = sink.Redacted(cfg.sink)
	n, err := sink.NewNATS(sink.NATSConfig{
		URL: cfg.sink, Stream: cfg.stream, Subject: cfg.subject, MessageBytes: int(cfg.message),
	})
	if err != nil {
		return nil, err
	}
	if err := n.Check(context.Background()); err != nil {
		logger.Warn("the sink cannot be used yet; records wait for it", "error", err)
	}
	longest := int(cfg.frame) + decode.OverheadBytes
	if most := n.MaxRecordBytes(); most > 0 && most < longest {
		logger.Warn("the sink rejects long records", "longer than", most, "a frame may become", longest)
	}
	return n, nil
}

// newRejected opens where records go that the sink will never take.
func (s *server) newRejected(logger *slog.Logger) (sink.Store, error) {
	switch dir := s.cfg.rejected; dir {
	case dropRejected:
		return nil, nil
	case "": // not before it is needed
		return &sink.Lazy{Open: func() (sink.Store, error) {
			dir, err := os.MkdirTemp("", "weir-ingest-rejected-")
			if err != nil {
				return nil, err
			}
			logger.Warn("rejected records are set aside", "directory", dir)
			return sink.NewFile(sink.FileConfig{
				Dir: dir, MaxBytes: int64(s.cfg.fileSize), Keep: s.cfg.fileKeep,
				Logger: logger,
			})
		}}, nil
	default:
		return s.newFile(filepath.Clean(dir), logger)
	}
}
