package command

import (
	"bytes"
	"fmt"
	"os"
	"runtime/metrics"
	"strings"

	"github.com/weirnet/weir/examples/resp/internal/store"
)

// compatibleVersion is the Redis whose replies these are; clients choose what they send by it.
const compatibleVersion = "7.0.15"

func serverCommands() []command {
	return []command{
		{
			name: "dbsize", arity: 1, flags: "readonly fast", group: "server",
			summary: "Return the number of keys in the selected database", run: dbsize,
		},
		{
			name: "info", arity: -1, flags: "loading stale", group: "server",
			summary: "Get information and statistics about the server", run: info,
		},
		{
			name: "config", arity: -2, flags: "", group: "server", summary: "A container for server configuration commands",
			subs: []subcommand{{"get", -3, configGet}},
		},
		{
			name: "command", arity: -1, flags: "loading stale", group: "server", summary: "Get array of command details",
			run: describeAll, subs: []subcommand{
				{"count", 2, func(s *Session) { s.int(len(s.set.list)) }},
				{"docs", -2, func(s *Session) { s.documentNamed(s.args[2:]) }},
				{"info", -2, func(s *Session) { s.describeNamed(s.args[2:]) }},
			},
		},
		{
			name: "flushall", arity: -1, flags: "write", group: "server", summary: "Remove all keys from all databases",
			run: flushall,
		},
	}
}

func dbsize(s *Session) {
	locked := s.lockAll(s.db)
	n, _ := locked.Len()
	s.unlockAll(locked)
	s.int(n)
}

func flushall(s *Session) {
	if len(s.args) > 2 || len(s.args) == 2 && !is(s.args[1], "async") && !is(s.args[1], "sync") {
		s.raw(errSyntax)
		return
	}
	if !s.exclusive {
		s.set.store.LockAll()
		defer s.set.store.Unlock()
	}
	s.set.store.Flush()
	s.raw(replyOK)
}

// settings are what CONFIG GET replies with, by name.
func (s *Session) settings() [][2]string {
	return [][2]string{
		{"appendonly", "no"},
		{"databases", fmt.Sprint(s.set.store.Databases())},
		{"maxmemory", "0"},
		{"maxmemory-policy", "noeviction"},
		{"proto-max-bulk-len", fmt.Sprint(maxStringBytes)},
		{"save", ""},
	}
}

func configGet(s *Session) {
	settings := s.settings()
	var found []string
	added := make([]bool, len(settings))
	for _, pattern := range s.args[2:] {
		glob := bytes.ContainsAny(pattern, "[*?")
		for i, setting := range settings {
			if added[i] || !store.Match(pattern, []byte(setting[0]), true) {
				continue
			}
			name := setting[0]
			if !glob {
				name = string(pattern) // Redis repeats a plain name in the case that it was given
			}
			found = append(found, name, setting[1])
			added[i] = true
		}
	}
	s.mapHeader(len(found) / 2)
	for _, text := range found {
		s.bulk(text)
	}
}

func info(s *Session) {
	sections := []struct {
		name  string
		write func(*strings.Builder, *Session)
	}{{"Server", infoServer}, {"Clients", infoClients}, {"Memory", infoMemory}, {"Keyspace", infoKeyspace}}
	var text strings.Builder
	for _, section := range sections {
		wanted := len(s.args) == 1
		for _, a := range s.args[1:] {
			wanted = wanted || is(a, strings.ToLower(section.name)) ||
				is(a, "all") || is(a, "default") || is(a, "everything")
		}
		if !wanted {
			continue
		}
		if text.Len() > 0 {
			text.WriteString("\r\n")
		}
		fmt.Fprintf(&text, "# %s\r\n", section.name)
		section.write(&text, s)
	}
	s.verbatim(text.String())
}

func infoServer(text *strings.Builder, s *Session) {
	uptime := (s.set.store.Now() - s.set.started) / 1000
	fmt.Fprintf(text, "redis_version:%s\r\nredis_mode:standalone\r\nprocess_id:%d\r\nuptime_in_seconds:%d\r\n",
		compatibleVersion, os.Getpid(), uptime)
}

func infoClients(text *strings.Builder, s *Session) {
	fmt.Fprintf(text, "connected_clients:%d\r\n", s.set.sessions.Load())
}

func infoMemory(text *strings.Builder, _ *Session) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	fmt.Fprintf(text, "used_memory:%d\r\nmaxmemory:0\r\n", heap[0].Value.Uint64())
}

func infoKeyspace(text *strings.Builder, s *Session) {
	for i := range s.set.store.Databases() {
		locked := s.lockAll(s.set.store.DB(i))
		keys, expiring := locked.Len()
		s.unlockAll(locked)
		if keys > 0 {
			fmt.Fprintf(text, "db%d:keys=%d,expires=%d,avg_ttl=0\r\n", i, keys, expiring)
		}
	}
}

func describeAll(s *Session) { s.describeNamed(nil) }

// describeNamed replies with null for a name that is none.
func (s *Session) describeNamed(names [][]byte) {
	if len(names) == 0 {
		s.array(len(s.set.list))
		for _, c := range s.set.list {
			s.describe(c)
		}
		return
	}
	s.array(len(names))
	for _, name := range names {
		if c := s.set.lookup(name); c != nil {
			s.describe(c)
		} else {
			s.null()
		}
	}
}

// documentNamed replies with name and documentation by turns, and nothing for a name that is none.
func (s *Session) documentNamed(names [][]byte) {
	found := s.set.list
	if len(names) > 0 {
		found = nil
		for _, name := range names {
			if c := s.set.lookup(name); c != nil {
				found = append(found, c)
			}
		}
	}
	s.mapHeader(len(found))
	for _, c := range found {
		s.bulk(c.name)
		s.mapHeader(2)
		s.bulk("summary")
		s.bulk(c.summary)
		s.bulk("group")
		s.bulk(c.group)
	}
}

// describe replies with the ten elements that Redis 7 gives; of categories, hints, key specifications and subcommands
// there are none.
func (s *Session) describe(c *command) {
	s.array(10)
	s.bulk(c.name)
	s.int(c.arity)
	flags := strings.Fields(c.flags)
	s.setHeader(len(flags))
	for _, flag := range flags {
		s.raw("+" + flag + "\r\n")
	}
	s.int(c.first)
	s.int(c.last)
	s.int(c.step)
	s.setHeader(0)
	for range 3 {
		s.array(0)
	}
}
