package ring

import . "unsafe" // want "unsafe imported as ."

var _ Pointer
