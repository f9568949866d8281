package sink

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPasswordIsNeverShown(t *testing.T) {
	for urls, want := range map[string]string{
		"nats://host:4222":                       "nats://host:4222",
		"nats://user:secret@host":                "nats://user:xxxxx@host",
		"nats://secret@host":                     "nats://xxxxx@host",
		"nats://a, tls://user:secret@b:1":        "nats://a,tls://user:xxxxx@b:1",
		"nats://user:secret@[":                   "nats://xxxxx@[",
		"nats://user:sec,secret@host":            "nats://xxxxx@host",
		"nats://user:secret/secret@host:x":       "nats://xxxxx@host:x",
		"http://user:secret@host":                "http://user:xxxxx@host",
		"nats://user:secret@a,nats://u:secret@[": "nats://xxxxx@[",
	} {
		assert.Equal(t, want, Redacted(urls))
		if err := CheckURL(urls); err != nil {
			assert.NotContains(t, err.Error(), "secret")
		}
	}
	n, err := NewNATS(NATSConfig{URL: "nats://user:secret@127.0.0.1:1"})
	require.NoError(t, err)
	defer func() { _ = n.Close() }()
	err = n.Store(context.Background(), &Batch{Lines: []byte("a\n")})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
}

func TestOnlyNATSIsASinkWithAURL(t *testing.T) {
	for _, urls := range []string{"nats://a", "nats://a:4222", "tls://u:p@a", "nats://a,nats://b:1"} {
		assert.NoError(t, CheckURL(urls))
	}
	for _, urls := range []string{
		"", "nats://", "nats://:4222", "nats://[", "http://x", "a", "nats://a,", "nats://a,b", "nats://a:x", "nats://" + strings.Repeat("[", 100),
	} {
		assert.ErrorIs(t, CheckURL(urls), ErrConfig, urls)
	}
}
