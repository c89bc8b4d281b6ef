"""Live pictures as plain data: what a cell, the dashboard and a still draw alike. Pure."""
