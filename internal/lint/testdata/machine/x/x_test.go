package x

const inTests = "/tmp/x" // want "a path of the machine"
