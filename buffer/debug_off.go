//go:build !invariants

package buffer

const reuseForbidden = false

type (
	record struct{}
	ledger struct{}
)

func newRecord(string) *record { return nil }
func (*record) where() string  { return "" }

func newLedger() *ledger            { return nil }
func (*ledger) open(b *Buf) *record { return b.debug }
func (*ledger) close(*Buf)          {}
func (*ledger) leaks() []string     { return nil }

func (*Buf) note(string) {}
func poison([]byte)      {}
func checkPoison([]byte) {}
