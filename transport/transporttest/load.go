package transporttest

import "github.com/weirnet/weir/transport"

func loadClaims() []claim {
	return []claim{
		{name: "an Accept with a limit takes so many connections and leaves the others", run: acceptLimit},
		{name: "an Accept with a limit below zero fails", run: acceptNegative},
		{name: "an Accept with a limit that is cancelled hands out what it took first", run: acceptLimitCanceled},
		{name: "Load says what waits to be handed out, also on other goroutines", needs: needsPrompt, run: loadWaits, ends: 1},
	}
}

// acceptLimit asks for limits around what waits, and around the batches that transports take connections in.
func acceptLimit(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	taken := 0
	for _, limit := range []int{1, 2, 15, 16, 17, 40} {
		const more = 2
		var cons []*call
		for range limit + more {
			cons = append(cons, r.client().connect(dial))
		}
		r.done(cons...)
		acc := r.server().acceptSome(h, limit)
		r.done(acc)
		r.must("the Accept", acc.err)
		r.quiet()
		if taken += limit; len(acc.conns) != limit || r.server().tr.Stats().Open != 1+taken {
			r.Fatalf("limit %d: %v took %d, %d open", limit, acc, len(acc.conns), r.server().tr.Stats().Open)
		}
		rest := r.server().acceptSome(h, more)
		r.done(rest)
		r.must("the rest", rest.err)
		taken += more
		acc = r.server().acceptSome(h, limit)
		for range limit { // one after the other
			con := r.client().connect(dial)
			r.done(con)
			r.quiet()
		}
		r.done(acc)
		last := r.client().connect(dial)
		r.done(last)
		r.quiet()
		rest = r.server().acceptSome(h, 1)
		r.done(rest)
		r.must("the one behind the limit", rest.err)
		taken += limit + 1
	}
}

func acceptNegative(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	acc := r.server().acceptSome(h, -1)
	r.done(acc)
	if acc.err == nil || len(acc.conns) > 0 {
		r.Fatalf("%v took %d connections", acc, len(acc.conns))
	}
}

// acceptLimitCanceled cancels at every distance from the arrival of connections.
func acceptLimitCanceled(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	var cons []*call
	taken := 0
	for i := range 30 {
		acc := r.server().acceptSome(h, 3)
		for range 4 {
			cons = append(cons, r.client().connect(dial))
		}
		for range i % 6 {
			r.turn()
		}
		r.done(r.server().cancel(acc), acc)
		if acc.err == nil && len(acc.conns) != 3 || len(acc.conns) > 3 {
			r.Fatalf("%v took %d connections", acc, len(acc.conns))
		}
		if acc.err != nil {
			r.wantErr("the Accept", acc.err, transport.ErrCanceled)
		}
		taken += len(acc.conns)
	}
	rest := r.server().acceptSome(h, 0)
	r.done(cons...)
	r.until("all connections", func() bool { return taken+len(rest.conns) == len(cons) })
}

func loadWaits(r *rig) {
	const n = 10
	e := r.ends[0]
	idle := e.tr.Load()
	if idle.Waiting != 0 || idle.Entries < 1 {
		r.Fatalf("idle: %+v", idle)
	}
	calls := e.someCompletions(n)
	e.batch = make([]transport.Completion, 0, 1)
	for left := n - 1; left >= 0; left-- {
		e.wait(0)
		seen := make(chan transport.Load)
		go func() { seen <- e.tr.Load() }()
		if load := <-seen; load.Waiting != left || load.Entries != idle.Entries {
			r.Fatalf("%d are left: %+v", left, load)
		}
		st := e.tr.Stats()
		if st.Waiting != left || st.WaitingPeak < n-1 || st.WaitingPeak > n || st.WaitingEntries != idle.Entries {
			r.Fatalf("%d are left: %+v", left, st)
		}
	}
	r.done(calls...)
}
