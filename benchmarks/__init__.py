"""One module per claim: ``python -m benchmarks.NAME --json`` prints one JSON object, last."""
