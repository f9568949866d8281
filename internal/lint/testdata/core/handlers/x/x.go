package x

import "time"

var _ = time.Now()
