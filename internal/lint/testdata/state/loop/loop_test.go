package loop

var forTests int
