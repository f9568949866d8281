//go:build linux

package compare

import (
	"context"
	"errors"
	"maps"
	"time"
)

// Run runs the comparison that cfg asks for. When it fails, or ctx is done, the report holds what there was until then.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	report := &Report{Begun: time.Now(), Machine: ThisMachine(), Config: cfg}
	err := report.fill(ctx, NewRunner(cfg))
	report.Targets = Targets(report.Outcomes, report.Crowds)
	report.Took = time.Since(report.Begun)
	return report, err
}

func (r *Report) fill(ctx context.Context, runner *Runner) error {
	procs, err := runner.Tune(ctx)
	if err != nil {
		return err
	}
	r.Procs = maps.Clone(procs)
	cfg := &runner.cfg
	for _, s := range Scenarios() {
		if !matches(s.Name, cfg.Scenario) || cfg.Quick && cfg.Scenario == "" && !s.Quick {
			continue
		}
		runner.progress("%s", s.Name)
		o, err := runner.Run(ctx, s)
		r.Outcomes = append(r.Outcomes, o)
		if err != nil {
			return err
		}
	}
	resp, respErr := runner.Resp(ctx)
	r.Outcomes = append(r.Outcomes, resp...)
	if respErr != nil || !matches(idleName, cfg.Scenario) {
		return respErr
	}
	crowds, err := runner.Idle(ctx)
	r.Crowds = crowds
	return errors.Join(err, ctx.Err())
}

// Names are the names of all scenarios.
func Names() (names []string) {
	for _, s := range Scenarios() {
		names = append(names, s.Name)
	}
	for _, s := range respScenarios {
		names = append(names, s.name())
	}
	return append(names, idleName)
}
