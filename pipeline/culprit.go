package pipeline

// HandlerIn answers which handler a stack (the text of debug.Stack) runs in: "name (package.Type)", or "" when in none.
func (p *Pipeline) HandlerIn(stack []byte) string { return "" }
