package channel

import _ "golang.org/x/sys/unix" // want "channel must not import golang.org/x/sys/unix"
