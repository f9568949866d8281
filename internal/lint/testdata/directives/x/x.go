package x

//weir:immutable a table
var a = []int{1}

/* want "weir:immutable does not say why" */ //weir:immutable
var b = []int{1}

/* want "unknown directive weir:imutable" */ //weir:imutable a table
var c = []int{1}

//go:noinline
func f() {}

// weir:nothing is no directive
