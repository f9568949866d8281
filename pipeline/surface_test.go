package pipeline_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/pipeline"
)

// What only a channel may do is a method of Driver: a handler that could call SetLife, say, would leave its channel
// open for ever.
func TestAHandlerCanOnlyCallWhatIsForHandlers(t *testing.T) {
	methods := methodsOf(reflect.TypeFor[*pipeline.Pipeline]())
	assert.Equal(t, []string{
		"Active", "AddAfter", "AddBefore", "AddFirst", "AddLast", "Close", "Context", "FireError", "FireEvent", "FireRead",
		"FireReadComplete", "Flush", "Get", "HandlerIn", "LocalAddr", "Names", "Open", "Reading", "RemoteAddr", "Remove",
		"Replace", "Unhandled", "Writable", "Write", "WriteBytes",
	}, methods)
	assert.Subset(t, methodsOf(reflect.TypeFor[*pipeline.Driver]()),
		[]string{"FireActive", "FireInactive", "RemoveAll", "SetLife"})
}

func methodsOf(t reflect.Type) []string {
	var names []string
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	slices.Sort(names)
	return names
}
