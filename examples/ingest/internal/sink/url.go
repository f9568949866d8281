package sink

import (
	"fmt"
	"net/url"
	"strings"
)

// CheckURL returns an error, which wraps ErrConfig, unless urls are those of NATS servers, separated by commas. It does
// not repeat what url.Parse says, which may be part of a password.
func CheckURL(urls string) error {
	for one := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" {
			return fmt.Errorf("%w: %s: want nats://host:port or tls://host:port", ErrConfig, Redacted(urls))
		}
	}
	return nil
}

// Redacted is urls for people to read: without passwords and tokens.
func Redacted(urls string) string {
	all := strings.Split(urls, ",")
	for i, one := range all {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" {
			return masked(urls) // nobody knows where a password begins and ends
		}
		if _, password := u.User.Password(); u.User != nil && !password {
			u.User = url.User("xxxxx") // a token
		}
		all[i] = u.Redacted()
	}
	return strings.Join(all, ",")
}

// masked is text without what is between the first "://" and the last "@".
func masked(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if at := strings.LastIndexByte(rest, '@'); found && at >= 0 {
		return scheme + "://xxxxx" + rest[at:]
	}
	return text
}
