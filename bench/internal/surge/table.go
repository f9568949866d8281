package surge

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Table runs all rungs and writes a Markdown table of medians over the seeds, and a plot into dir, where that is not
// "".
func Table(w io.Writer, load Load, seeds int, dir string) error {
	title := fmt.Sprintf("%g times the capacity", load.Times)
	if load.Slower > 0 {
		title += fmt.Sprintf(", the service time %g times as long from the middle on", load.Slower)
	}
	title += [...]string{"", ", naive retries", ", budgeted retries"}[load.Retries]
	fmt.Fprintf(w, "\n%s\n\n| | goodput | after the change | class 0 | class 3 | p50 ms | p99.9 ms | failed later | attempts |\n"+
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n", title)
	series := map[string][]Point{}
	var names []string
	for _, rung := range Rungs(load.Workers) {
		var runs []Result
		for seed := range uint64(seeds) {
			policy, err := rung.Make()
			if err != nil {
				return err
			}
			load.Seed = seed
			runs = append(runs, Run(load, policy))
		}
		names, series[rung.Name] = append(names, rung.Name), runs[0].Series
		m := func(of func(Result) float64) float64 {
			var all []float64
			for _, r := range runs {
				all = append(all, of(r))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %.3f | %.3f | %.0f | %.0f | %.1f %% | %.2f |\n", rung.Name,
			m(func(r Result) float64 { return r.Goodput }), m(func(r Result) float64 { return r.Slow }),
			m(func(r Result) float64 { return r.Class[0] }), m(func(r Result) float64 { return r.Class[3] }),
			m(func(r Result) float64 { return ms(r.P50) }), m(func(r Result) float64 { return ms(r.P999) }),
			100*m(func(r Result) float64 { return r.Recovery }), m(func(r Result) float64 { return r.Amplified }))
	}
	if dir == "" {
		return nil
	}
	file := strings.NewReplacer(" ", "-", ",", "").Replace(title) + ".svg"
	return os.WriteFile(filepath.Join(dir, file), []byte(plot("Goodput, "+title, names, series)), 0o644)
}

// plot draws the goodput of each rung over time.
func plot(title string, names []string, series map[string][]Point) string {
	const width, height, left, top = 640, 200, 50, 30
	colours := [...]string{"#888", "#d62728", "#ff9896", "#1f77b4", "#17becf", "#bcbd22", "#2ca02c", "#000"}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+
		`<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="18">%s</text>`+"\n", width+250, height+70, left, title)
	for i := range 4 {
		y := top + height - float64(i)*height/3*1.0
		fmt.Fprintf(&b, `<path d="M%d %.0fH%d" stroke="#ddd"/><text x="20" y="%.0f">%.1f</text>`+"\n", left, y, left+width, y+4, 0.4*float64(i))
		fmt.Fprintf(&b, `<text x="%d" y="%d">%d s</text>`+"\n", left+i*width/3-8, top+height+16, 10*i)
	}
	for i, name := range names {
		points := series[name]
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" points="`, colours[i%len(colours)])
		for j := 0; j+5 <= len(points); j += 5 {
			sum := 0.0
			for _, p := range points[j : j+5] {
				sum += p.Good
			}
			fmt.Fprintf(&b, "%.0f,%.1f ", left+float64(j)*width/300, top+height-min(sum/5, 1.2)/1.2*height)
		}
		fmt.Fprintf(&b, `"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n", left+width+12, top+12+i*18, colours[i%len(colours)], name)
	}
	return b.String() + "</svg>\n"
}
