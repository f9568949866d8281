package ringtest

import _ "unsafe" // want "internal/ring/ringtest must not import unsafe" "unsafe imported as _"
