package lb

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// Check is a kind of health check.
type Check uint8

// Kinds of checks. All go to the server's own address, not to the VIP.
const (
	NoCheck   Check = iota // the server is always healthy
	TCPCheck               // a connection can be made
	HTTPCheck              // GET returns a status of 2xx or 3xx
	UDPCheck               // a datagram comes back as it was sent
)

// Health says how the servers of a VIP are checked.
type Health struct {
	Kind Check
	// Port is what is connected to. Zero means the VIP's.
	Port uint16
	// Path is what HTTPCheck asks for: "/" when empty.
	Path string
}

// check returns an error that wraps ErrConfig where the servers of a VIP can't be checked like this.
func (h Health) check(v VIP) error {
	if h.Kind > UDPCheck || h.Path != "" && h.Path[0] != '/' || h.Kind != NoCheck && h.Port == 0 && v.Port == 0 {
		return fmt.Errorf("lb: health check %d of path %q on port %d or that of %v: %w", h.Kind, h.Path, h.Port, v, ErrConfig)
	}
	return nil
}

// echo is what UDPCheck sends.
const echo = "weir health check"

// probe checks a server once. dial is Config.Dial.
func (h Health) probe(
	ctx context.Context, server netip.Addr, port uint16,
	dial func(context.Context, string, string) (net.Conn, error),
) error {
	address := netip.AddrPortFrom(server, port).String()
	switch h.Kind {
	case TCPCheck:
		c, err := dial(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	case HTTPCheck:
		return h.get(ctx, address, dial)
	case UDPCheck:
		c, err := dial(ctx, "udp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		if end, ok := ctx.Deadline(); ok {
			if err := c.SetDeadline(end); err != nil {
				return err
			}
		}
		got := make([]byte, len(echo)+1)
		if _, err := io.WriteString(c, echo); err != nil {
			return err
		}
		n, err := c.Read(got)
		if err == nil && string(got[:n]) != echo {
			err = fmt.Errorf("lb: %q came back from %s", got[:n], address)
		}
		return err
	}
	return nil
}

func (h Health) get(
	ctx context.Context, address string, dial func(context.Context, string, string) (net.Conn, error),
) error {
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: 1 << 14}
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+h.Path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		err = fmt.Errorf("lb: GET %s: status %s", request.URL, strconv.Itoa(response.StatusCode))
	}
	if closing := response.Body.Close(); err == nil {
		err = closing
	}
	return err
}

// hysteresis counts checks that contradict a state until there are enough in a row.
type hysteresis struct{ rise, fall int }

// observe returns what healthy and row become by a check.
func (h hysteresis) observe(healthy bool, row int, ok bool) (bool, int) {
	if ok == healthy {
		return healthy, 0
	}
	row++
	if healthy && row >= h.fall || !healthy && row >= h.rise {
		return ok, 0
	}
	return healthy, row
}

// every calls f at once and then with pauses, until ctx ends.
func every(ctx context.Context, pause time.Duration, f func()) {
	t := time.NewTicker(pause)
	defer t.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}
