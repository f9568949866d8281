package loop

// Stats are what a loop counted since it was made.
type Stats struct {
	Turns       uint64 // turns: each waited once, perhaps without sleeping
	Completions uint64 // completions handed to completers
	Stale       uint64 // completions whose completer was unregistered; dropped
	Nodes       uint64 // nodes run
	Tasks       uint64 // tasks run
	Refused     uint64 // tasks refused because MaxTasks waited
	Timers      uint64 // timers fired
	EndTurns    uint64 // EndTurn calls
	Panics      uint64 // panics recovered, those of Panicked and Abort included
	Stuck       uint64 // turns the Group's watchdog found to last longer than WatchdogAfter

	MaxQueued  int // most tasks that waited at a time
	Queued     int // tasks that wait now
	Registered int // completers registered now
	TimersSet  int // timers that will fire
}

// Stats returns the counters. It belongs to the loop's goroutine; when the loop is gone (Done), to anybody.
func (l *Loop) Stats() Stats {
	s := l.stats
	s.Refused = l.refused.Load()
	s.Stuck = l.stuck.Load()
	s.Queued, s.MaxQueued = l.tasks.lengths()
	s.Registered = l.registered
	s.TimersSet = l.timers.len()
	return s
}
