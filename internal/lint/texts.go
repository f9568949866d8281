package lint

import (
	"bytes"
	"regexp"
)

// maxLines is how long a Go file that is not a test may be.
const maxLines = 600

// The project speaks of itself alone: machine matches paths of the machine it happens to be written on, proxy the names
// and settings of proxies and mirrors.
var (
	//weir:immutable a compiled expression
	machine = regexp.MustCompile(`(^|[^\w.$}~-])/(work|tmp|root|home)/`)
	//weir:immutable a compiled expression
	proxy = regexp.MustCompile(`(?i)\b(GOPROXY|GONOSUMDB|GONOSUMCHECK|https?_proxy)\s*=|` +
		`\b[\w-]*(proxy|mirror|artifactory|nexus)[\w-]*(\.[\w-]+)*\.(com|org|net|io|dev|internal|corp|local|lan|example)\b|` +
		`\b[\w-]+\.(internal|corp|intra|lan)\b`)
)

// Length finds files that are too long to be about one thing.
func Length(t *Tree) (found []Finding) {
	for _, f := range t.Files {
		if !f.Test && !f.generated() && f.Lines > maxLines {
			found = append(found, Finding{f.Path, f.Lines, "the file has more than 600 lines"})
		}
	}
	return sorted(found)
}

// Machine finds paths and proxies of the machine that a file was written on. A line is excused by weir:path.
func Machine(t *Tree) (found []Finding) {
	for _, text := range t.Texts {
		excused := false // by the line before
		line := 0
		for l := range bytes.Lines(text.Body) {
			line++
			has := bytes.Contains(l, []byte("weir:path "))
			if !has && !excused {
				if m := machine.Find(l); m != nil {
					found = append(found, Finding{text.Path, line, "a path of the machine: " + string(bytes.TrimSpace(l))})
				}
				if m := proxy.Find(l); m != nil {
					found = append(found, Finding{text.Path, line, "a proxy: " + string(m)})
				}
			}
			excused = has
		}
	}
	return sorted(found)
}
