"""What a pool does over time: samples, rates between them, a bounded history of both."""
