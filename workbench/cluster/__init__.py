"""A pool in a Ray cluster: the only place that imports Ray."""
