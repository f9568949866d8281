package transporttest

import "github.com/weirnet/weir/transport"

func loadBreakages() []breakage {
	const limit = "an Accept with a limit takes so many connections and leaves the others"
	const load = "Load says what waits to be handed out, also on other goroutines"
	return []breakage{
		{"an Accept ignores its limit", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Accept {
				op.Limit = 0
			}
			b.Transport.Submit(op)
		}}, []string{limit, "an Accept with a limit below zero fails"}},
		{"an Accept takes one more than its limit", broken{submit: func(b *broken, op transport.Op) {
			if op.Kind == transport.Accept && op.Limit > 0 {
				op.Limit++
			}
			b.Transport.Submit(op)
		}}, []string{limit, "an Accept with a limit that is cancelled hands out what it took first"}},
		{"Load is always zero", broken{load: func(l *transport.Load) { l.Waiting = 0 }}, []string{load}},
		{"Load never falls", broken{load: func(l *transport.Load) { l.Waiting = max(l.Waiting, 1) }}, []string{load}},
		{"Load has no measure", broken{load: func(l *transport.Load) { l.Entries = 0 }}, []string{load}},
		{"Stats forget the peak", broken{stats: func(s *transport.Stats) { s.WaitingPeak = s.Waiting }}, []string{load}},
	}
}
