package x

const y = "/tmp/x" // want "a path of the machine"
