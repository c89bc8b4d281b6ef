"""Endless rollouts: groups begun by capacity, queued, and handed out before they are too old.

* ``rules.py``, ``groups.py`` and ``ledger.py`` decide, without a clock, a task or an actor;
* ``queue.py`` and ``rollouter.py`` are the asyncio shells around them.
"""
