package sink

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	// MessageBytes is the size up to which lines are put into one message; a longer line is a message of its own. Where
	// the server or the stream takes less, less is put into one. Zero means 32 KiB, 1 a message a line.
	MessageBytes int
	// AckTimeout is how long to wait for acknowledgements before what lacks one is sent again. Zero means 5 s.
	AckTimeout time.Duration
}

// NATS is a Store that publishes to NATS JetStream. What the server has acknowledged is in the stream's files; what it
// has not is published again, under the same message ID, so that the stream drops what it has already (within its
// window for duplicates, two minutes by default). A message that is too large for the server or for the stream is
// divided; a line that is too large alone is rejected. All other errors can pass: a stream that is full refuses what
// somebody may make room for.
type NATS struct {
	cfg   NATSConfig
	conn  *nats.Conn
	js    jetstream.JetStream
	run   string // part of the message IDs, which must differ between runs
	ready bool   // the stream is there, and takes the subject
	most  int    // bytes of a message that the stream takes; 0: no limit

	batch    uint64 // of what follows
	messages []message
	rejected RejectedError
}

// message is a part of the batch that is being stored.
type message struct {
	lines  []byte
	offset int // in the batch: part of the message's ID
	future jetstream.PubAckFuture
	err    error
}

// headerBytes is more than what a message has beside its lines: the header with its ID.
const headerBytes = 128

var _ Store = (*NATS)(nil)

// NewNATS returns a NATS. A server that is not there yet is waited for in Store. Errors wrap ErrConfig.
func NewNATS(cfg NATSConfig) (*NATS, error) {
	cfg.Stream = cmp.Or(cfg.Stream, "INGEST")
	cfg.Subject = cmp.Or(cfg.Subject, "ingest.lines")
	cfg.MessageBytes = cmp.Or(cfg.MessageBytes, 32<<10)
	cfg.AckTimeout = cmp.Or(cfg.AckTimeout, 5*time.Second)
	switch {
	case cfg.MessageBytes < 0 || cfg.AckTimeout < 0:
		return nil, fmt.Errorf("%w: MessageBytes %d, AckTimeout %v", ErrConfig, cfg.MessageBytes, cfg.AckTimeout)
	case !isSubject(cfg.Subject):
		return nil, fmt.Errorf("%w: NATS subject %q: want tokens between dots, without spaces, * and >", ErrConfig,
			cfg.Subject)
	case !isSubject(cfg.Stream) || strings.ContainsAny(cfg.Stream, `./\`):
		return nil, fmt.Errorf(`%w: NATS stream %q: want a name without spaces, dots, *, >, / and \`, ErrConfig,
			cfg.Stream)
	}
	if err := CheckURL(cfg.URL); err != nil {
		return nil, err
	}
	// Without a buffer of its own, a client that is not connected says so, and what waits stays in the one queue that
	// is bounded and watched.
	conn, err := nats.Connect(cfg.URL, nats.Name("weir ingest"), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ReconnectBufSize(-1))
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

// Check says why nothing can be stored at the moment. It is for the start, before the first Store.
func (n *NATS) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.AckTimeout)
	defer cancel()
	return n.prepare(ctx)
}

// MaxRecordBytes is the longest line that the server and the stream take; 0 when that is not known, since Check failed.
func (n *NATS) MaxRecordBytes() int {
	if !n.ready {
		return 0
	}
	return n.limit()
}

// Store publishes b and waits until all of it is acknowledged or rejected.
func (n *NATS) Store(ctx context.Context, b *Batch) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.AckTimeout)
	defer cancel()
	if err := n.prepare(ctx); err != nil {
		return err
	}
	if n.batch != b.Number {
		n.batch, n.rejected = b.Number, RejectedError{}
		n.messages = divide(nil, b.Lines, 0, min(n.cfg.MessageBytes, n.limit()))
	}
	for len(n.messages) > 0 { // each time some are acknowledged, rejected or divided
		if err := n.publish(ctx); err != nil {
			n.ready = false // the stream may be gone
			return err
		}
	}
	rejected := n.rejected
	return rejected.orNil()
}

// Close closes the connection.
func (n *NATS) Close() error {
	n.conn.Close()
	return nil
}

// prepare makes the stream when it is not there. A stream of that name that somebody has made stays as it is.
func (n *NATS) prepare(ctx context.Context) error {
	if !n.conn.IsConnected() {
		return fmt.Errorf("sink: NATS %s: %w", Redacted(n.cfg.URL), cmp.Or(n.conn.LastError(), nats.ErrDisconnected))
	}
	if n.ready {
		return nil
	}
	stream, err := n.js.Stream(ctx, n.cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		// DiscardNew: a full stream refuses, which is pressure. The other policy would throw away what it has
		// acknowledged.
		stream, err = n.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: n.cfg.Stream, Subjects: []string{n.cfg.Subject}, Storage: jetstream.FileStorage,
			Discard: jetstream.DiscardNew,
		})
	}
	if err != nil {
		return fmt.Errorf("sink: NATS stream %s: %w", n.cfg.Stream, err)
	}
	n.most = max(int(stream.CachedInfo().Config.MaxMsgSize), 0)
	switch owner, err := n.js.StreamNameBySubject(ctx, n.cfg.Subject); {
	case err != nil:
		return fmt.Errorf("sink: NATS stream %s: subject %s: %w", n.cfg.Stream, n.cfg.Subject, err)
	case owner != n.cfg.Stream:
		return fmt.Errorf("sink: NATS stream %s: subject %s belongs to stream %s", n.cfg.Stream, n.cfg.Subject, owner)
	}
	n.ready = true
	return nil
}

// limit is how many bytes of lines the server and the stream take in one message.
func (n *NATS) limit() int {
	most := int(n.conn.MaxPayload())
	if n.most > 0 {
		most = min(most, n.most)
	}
	return max(most-headerBytes, 1)
}

// publish sends what is left of the batch once and waits for what becomes of it. It returns the first error that can
// pass.
func (n *NATS) publish(ctx context.Context) (first error) {
	sent := 0
	for i := range n.messages {
		m := &n.messages[i]
		id := n.run + "-" + strconv.FormatUint(n.batch, 10) + "-" + strconv.Itoa(m.offset)
		// No retries by the client: they would outlive this call, and the memory of the lines.
		m.future, m.err = n.js.PublishAsync(n.cfg.Subject, m.lines, jetstream.WithMsgID(id),
			jetstream.WithRetryAttempts(0))
		sent++
		if m.err != nil && !isTooLarge(m.err) {
			break
		}
	}
	var left []message
	for _, m := range n.messages[:sent] {
		switch err := m.await(ctx); {
		case err == nil:
		case !isTooLarge(err):
			if errors.Is(err, context.DeadlineExceeded) {
				err = errors.Join(err, n.conn.LastError()) // a missing permission is said there only
			}
			first = cmp.Or(first, fmt.Errorf("sink: NATS: not acknowledged: %w", err))
			left = append(left, m)
		case bytes.IndexByte(m.lines, '\n') == len(m.lines)-1: // alone
			n.rejected.add(m.lines, err)
		default:
			left = divide(left, m.lines, m.offset, len(m.lines)/2)
		}
	}
	n.messages = append(left, n.messages[sent:]...)
	return first
}

// await waits for the acknowledgement of m.
func (m *message) await(ctx context.Context) error {
	if m.err != nil {
		return m.err
	}
	select {
	case <-m.future.Ok():
		return nil
	case err := <-m.future.Err():
		return err
	case <-ctx.Done():
	}
	select { // both may be ready
	case <-m.future.Ok():
		return nil
	default:
		return ctx.Err()
	}
}

// isTooLarge reports whether the server or the stream will never take the message, as it is.
func isTooLarge(err error) bool {
	return errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum)
}

// divide appends messages of whole lines of up to most bytes.
func divide(to []message, lines []byte, offset, most int) []message {
	for len(lines) > 0 {
		piece := wholeLines(lines, most)
		to = append(to, message{lines: piece, offset: offset})
		lines, offset = lines[len(piece):], offset+len(piece)
	}
	return to
}

// isSubject reports whether text is a subject that can be published to.
func isSubject(text string) bool {
	for token := range strings.SplitSeq(text, ".") {
		if token == "" || strings.ContainsFunc(token,
			func(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' || r == '>' }) {
			return false
		}
	}
	return true
}
