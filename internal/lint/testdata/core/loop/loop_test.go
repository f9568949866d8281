package loop

import "time"

var _ = time.Now()
