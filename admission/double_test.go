package admission_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/admission"
	"github.com/weirnet/weir/internal/invariants"
)

func TestATicketIsReleasedOnce(t *testing.T) {
	l := newLedger(t, admission.Config{Connections: 2})
	l.Admit(admission.Arrival{})
	v := l.Admit(admission.Arrival{})
	v.Ticket.Release()
	if invariants.Enabled {
		require.Panics(t, v.Ticket.Release)
	} else {
		v.Ticket.Release()
	}
	assert.EqualValues(t, 1, l.Stats().Doubled)
	assert.EqualValues(t, 1, l.Used(), "the other one's place is not given away")
}
