package sink

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// NATSConfig configures a NATS.
type NATSConfig struct {
	// URL is the server's, or several separated by commas.
	URL string
	// Stream is the JetStream stream; it is made, with files as its storage, when it is not there. Empty means INGEST.
	Stream string
	// Subject is what lines are published under. Empty means ingest.lines.
	Subject string
	// MessageBytes is the size up to which lines are put into one message; a longer line is a message of its own. Zero
	// means 32 KiB, 1 a message a line.
	MessageBytes int
	// AckTimeout is how long to wait for acknowledgements before what lacks one is sent again. Zero means 5 s.
	AckTimeout time.Duration
}

// NATS is a Store that publishes to NATS JetStream. What the server has acknowledged is in the stream's files; what it
// has not is published again, under the same message ID, so that the stream drops what it has already (within its
// window for duplicates, two minutes by default).
type NATS struct {
	cfg   NATSConfig
	conn  *nats.Conn
	js    jetstream.JetStream
	run   string // part of the message IDs, which must differ between runs
	ready bool   // the stream is there

	batch    uint64 // of what follows
	messages []message
}

// message is a part of the batch that is being stored.
type message struct {
	lines  []byte
	number int
	future jetstream.PubAckFuture
}

var _ Store = (*NATS)(nil)

// NewNATS returns a NATS. A server that is not there yet is waited for in Store. Errors wrap ErrConfig.
func NewNATS(cfg NATSConfig) (*NATS, error) {
	cfg.Stream = cmp.Or(cfg.Stream, "INGEST")
	cfg.Subject = cmp.Or(cfg.Subject, "ingest.lines")
	cfg.MessageBytes = cmp.Or(cfg.MessageBytes, 32<<10)
	cfg.AckTimeout = cmp.Or(cfg.AckTimeout, 5*time.Second)
	if cfg.MessageBytes < 0 || cfg.AckTimeout < 0 {
		return nil, fmt.Errorf("%w: MessageBytes %d, AckTimeout %v", ErrConfig, cfg.MessageBytes, cfg.AckTimeout)
	}
	if err := CheckURL(cfg.URL); err != nil {
		return nil, err
	}
	// Without a buffer of its own, a client that is not connected says so, and what waits stays in the one queue that
	// is bounded and watched.
	conn, err := nats.Connect(cfg.URL, nats.Name("weir ingest"), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1))
	if err != nil {
		// The client's error may have all of the URL.
		return nil, fmt.Errorf("%w: %s: the client refuses it", ErrConfig, Redacted(cfg.URL))
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return &NATS{cfg: cfg, conn: conn, js: js, run: nuid.Next()}, nil
}

// Store publishes b and waits until all of it is acknowledged.
func (n *NATS) Store(ctx context.Context, b *Batch) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.AckTimeout)
	defer cancel()
	if !n.conn.IsConnected() {
		return fmt.Errorf("sink: NATS %s: %w", Redacted(n.cfg.URL), cmp.Or(n.conn.LastError(), nats.ErrDisconnected))
	}
	if err := n.prepare(ctx); err != nil {
		return fmt.Errorf("sink: NATS stream %s: %w", n.cfg.Stream, err)
	}
	if n.batch != b.Number {
		n.batch = b.Number
		n.divide(b.Lines)
	}
	for i := range n.messages {
		m := &n.messages[i]
		id := n.run + "-" + strconv.FormatUint(n.batch, 10) + "-" + strconv.Itoa(m.number)
		var err error
		// No retries by the client: they would outlive this call, and the memory of the lines.
		m.future, err = n.js.PublishAsync(n.cfg.Subject, m.lines, jetstream.WithMsgID(id),
			jetstream.WithRetryAttempts(0))
		if err != nil {
			return errors.Join(fmt.Errorf("sink: NATS publish: %w", err), n.await(ctx, n.messages[:i]))
		}
	}
	return n.await(ctx, n.messages)
}

// Close closes the connection.
func (n *NATS) Close() error {
	n.conn.Close()
	return nil
}

// prepare makes the stream when it is not there. A stream of that name that somebody has made stays as it is.
func (n *NATS) prepare(ctx context.Context) error {
	if n.ready {
		return nil
	}
	_, err := n.js.Stream(ctx, n.cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		// DiscardNew: a full stream refuses, which is pressure. The other policy would throw away what it has
		// acknowledged.
		_, err = n.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: n.cfg.Stream, Subjects: []string{n.cfg.Subject}, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
		})
	}
	n.ready = err == nil
	return err
}

// divide makes messages of whole lines.
func (n *NATS) divide(lines []byte) {
	n.messages = n.messages[:0]
	for len(lines) > 0 {
		end := min(len(lines), n.cfg.MessageBytes)
		if end < len(lines) {
			if last := bytes.LastIndexByte(lines[:end], '\n'); last >= 0 {
				end = last + 1
			} else {
				end += bytes.IndexByte(lines[end:], '\n') + 1
			}
		}
		n.messages = append(n.messages, message{lines: lines[:end], number: len(n.messages)})
		lines = lines[end:]
	}
}

// await waits for the acknowledgements of sent, the first messages, and forgets those that are acknowledged.
func (n *NATS) await(ctx context.Context, sent []message) error {
	var failed []message
	var first error
	for _, m := range sent {
		var err error
		select {
		case <-m.future.Ok():
			continue
		case err = <-m.future.Err():
		case <-ctx.Done():
			select { // both may be ready
			case <-m.future.Ok():
				continue
			default:
			}
			err = ctx.Err()
		}
		first = cmp.Or(first, err)
		m.future = nil
		failed = append(failed, m)
	}
	n.messages = append(failed, n.messages[len(sent):]...)
	if first != nil {
		n.ready = false // the stream may be gone
		return fmt.Errorf("sink: NATS: %d messages not acknowledged: %w", len(failed), first)
	}
	return nil
}
