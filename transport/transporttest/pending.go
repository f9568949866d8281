package transporttest

func recvClaims() []claim    { return nil }
func endClaims() []claim     { return nil }
func sendClaims() []claim    { return nil }
func fileClaims() []claim    { return nil }
func acceptClaims() []claim  { return nil }
func addressClaims() []claim { return nil }
func cancelClaims() []claim  { return nil }
func closeClaims() []claim   { return nil }
func churnClaims() []claim   { return nil }
