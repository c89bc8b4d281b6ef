"""A pool's dashboard: pages for a browser, served from any process that sees the pool.

Panel is imported when a dashboard is served, not before.
"""

from widgets.dashboard.dashboard import Dashboard, serve

__all__ = ["Dashboard", "serve"]
