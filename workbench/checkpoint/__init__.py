"""New weights for running engines: checked before any engine sees them, carried to every node."""
