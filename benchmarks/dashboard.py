"""What watching costs: a pool with 256 replicas and 100,000 sessions, in notebooks and browsers.

The pool is in a process of its own (:mod:`benchmarks.dashboard_pool`): a real balancer on which
some 2,000 turns are played between two samples, its samples, and a history whose hour and day are
full. Viewers read it through a socket, pickled, as from a cluster. There are no engines and no
model: engine figures are made up, and nothing is said about serving.

News come twice a second, which is twice as often as from a pool that was not told otherwise.

* ``update_s``: what one update of the heaviest page takes who serves it: getting the news and
  making all its pictures, which is done once however many look. By the clock, as a median; ``_cpu``
  is CPU time. Also by page and by picture; what widgets show are the pictures ``load``,
  ``stickiness``, ``cache`` and ``progress``. Browsers and sending are not in there.
* ``sample_s``, ``add_s``: taking the books of a sample at the balancer; adding it to the history.
* ``first_page_s``: what a new viewer waits for, who gets all of the history.
* ``rss_growth_mb``: what very many updates leave behind in a viewer whose history is full, after
  the garbage was collected; each with all pictures of all pages. The pool's last pages are read
  again and again with later times, since no pool can go through hours in minutes.
* ``kernel_cpu_share``: of one core, for all four widgets of a pool, without what the same kernel
  takes while nobody sees them; see :mod:`benchmarks.dashboard_kernel`.
* ``bytes_per_update``: of the heaviest page to one browser; ``frame_ms``, ``frame_p95_ms`` and
  ``longest_task_ms``: on the overview while it changes. All of this by page as well, see
  :mod:`benchmarks.dashboard_browser`.

Other work on the machine makes everything but bytes and memory larger; its load is given.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from benchmarks.dashboard_kernel import kernel
from benchmarks.dashboard_pool import REPLICAS, SESSIONS
from benchmarks.dashboard_updates import first_page, memory_process, updates
from benchmarks.dashboard_wire import pool_process, process
from benchmarks.report import arguments, emit

if TYPE_CHECKING:
    import argparse

PERIOD_S = 0.5
"""Between two samples."""
TIMED, SHOWN = 6, 4
"""Updates per round that are timed, and that each page shows to a browser."""


def parse() -> argparse.Namespace:
    """Command line."""
    parser = arguments(__doc__)
    parser.add_argument("--updates", type=int, default=1000, help="for the growth of memory")
    parser.add_argument("--skip-browser", action="store_true", help="Chromium is not needed then")
    return parser.parse_args()


def stepwise(rounds: int, memory_updates: int) -> dict[str, Any]:
    """With a pool that takes its samples when it is told to."""
    with process(pool_process, None) as where:
        figures: dict[str, Any] = first_page(where) | updates(where, TIMED * rounds)
        with process(memory_process, where, memory_updates) as memory:
            figures |= memory
        return figures


def live(rounds: int, *, with_browser: bool) -> dict[str, Any]:
    """With a pool that takes its samples at a pace."""
    with process(pool_process, PERIOD_S) as where:
        figures: dict[str, Any] = kernel(where, PERIOD_S)
        if with_browser:
            from benchmarks.dashboard_browser import browse

            figures |= browse(where, PERIOD_S, SHOWN * rounds)
        return figures


def main() -> None:
    """Command line."""
    options = parse()
    load = {"before": os.getloadavg()[0]}
    figures = stepwise(options.rounds, options.updates)
    figures |= live(options.rounds, with_browser=not options.skip_browser)
    load["after"] = os.getloadavg()[0]
    emit({**figures, "replicas": REPLICAS, "sessions": SESSIONS, "load_average": load})


if __name__ == "__main__":
    main()
