"""The recipes as plain Python, for a terminal or a job: ``python -m recipes.scripts.NAME``."""
