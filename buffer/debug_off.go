//go:build !invariants

package buffer

const reuseForbidden = false

type (
	record struct{}
	ledger struct{}
)

func newLedger() *ledger { return nil }

func (*ledger) open(*Buf) *record { return nil }
func (*ledger) close(*Buf)        {}
func (*ledger) leaks() []string   { return nil }

func (*Buf) note(string)      {}
func (*Buf) poison()          {}
func (*record) where() string { return "" }
