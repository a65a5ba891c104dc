"""Two gateways to measure others by, one that renders text each turn and one that only appends ids; and our proxy."""
