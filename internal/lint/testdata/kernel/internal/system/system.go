package system

import _ "golang.org/x/sys/unix" // want "internal/system must not"
