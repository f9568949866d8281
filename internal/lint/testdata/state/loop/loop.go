package loop

//weir:state counts the loops of the process
var waiting int

//weir:state and this one
var more int // want "second variable with weir:state: more"
