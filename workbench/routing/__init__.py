"""Which replica gets a request: pure decisions, no I/O."""
