package loop

var notForThisSystem undefined
