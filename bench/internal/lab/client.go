//go:build linux

package lab

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weirnet/weir/bench/internal/load"
)

// Client is a load generator that keeps its connections between windows.
type Client struct{ *Process }

// StartClient starts a load generator from dir and waits until it is connected.
func StartClient(dir string, cpu int, cfg load.Config) (*Client, error) {
	p, err := Start("load on "+cfg.Address, cpu, nil, filepath.Join(dir, "load"), "-control",
		"-addr", cfg.Address, "-kind", cfg.Kind, "-conns", strconv.Itoa(cfg.Conns), "-idle", strconv.Itoa(cfg.Idle),
		"-size", strconv.Itoa(cfg.SizeBytes), "-pipeline", strconv.Itoa(max(cfg.Pipeline, 1)),
		"-rate", strconv.FormatFloat(cfg.Rate, 'g', -1, 64), "-framed="+strconv.FormatBool(cfg.Framed),
		"-spin="+strconv.FormatBool(cfg.Spin), "-pid", strconv.Itoa(cfg.ServerPID))
	if err != nil {
		return nil, err
	}
	c := &Client{p}
	var ready string
	if err := c.answer(&ready); err != nil {
		_ = p.Stop() // what went wrong is known already
		return nil, err
	}
	return c, nil
}

// Slice measures one window.
func (c *Client) Slice(warmUp, window time.Duration) (r load.Result, err error) {
	if err := c.Say(fmt.Sprintf("slice %v %v", warmUp, window)); err != nil {
		return r, err
	}
	err = c.answer(&r)
	return r, err
}

// Touch uses every idle connection once.
func (c *Client) Touch() error {
	if err := c.Say("touch"); err != nil {
		return err
	}
	var touched string
	return c.answer(&touched)
}

func (c *Client) answer(to any) error {
	line, err := c.Line()
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(line), to); err != nil {
		return fmt.Errorf("lab: %s answered %q: %w", c.name, line, err)
	}
	return nil
}
