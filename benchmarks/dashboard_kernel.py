"""What widgets cost the kernel of a notebook, while a browser shows all of them.

A real kernel with the four widgets that show a pool, each in an output of its own. There is no
JupyterLab: this process is at the other end of the kernel's sockets, says what a browser says once
it shows a widget, and reads all that comes.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from benchmarks.dashboard_machine import cpu_s
from widgets.live_view import VIEW_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_client.blocking.client import BlockingKernelClient

WIDGETS = ("ReplicaLoad", "SessionStickiness", "KVCacheUsage", "RolloutProgress")
MEASURED_S = 20.0
WARM_UP_S = 3.0
START_S = 60.0
CELL = """
from benchmarks.dashboard_wire import Remote
from widgets import {names}
feed = Remote({where!r}).feed({period_s!r})
feed.pull()
assert not feed.error, feed.error
views = [show(feed) for show in ({names})]
"""


def kernel(where: tuple[str, bytes], period_s: float) -> dict[str, float]:
    """Shares of a core: with the widgets, without, and the difference.

    Args:
        where: the pool's address.
        period_s: how often it has news.
    """
    with _running_kernel() as kernel:
        names = ", ".join(WIDGETS)
        kernel.run(CELL.format(names=names, where=where, period_s=period_s))
        kernel.run("display(*views)")
        kernel.listen(WARM_UP_S)
        assert len(kernel.shown) == len(WIDGETS)
        kernel.see(1)
        with_them, pictures = kernel.measure()
        kernel.see(0)
        without, unseen = kernel.measure()
    assert not unseen, "widgets that nobody sees were drawn"
    return {
        "kernel_cpu_share": round(with_them - without, 4),
        "kernel_cpu_share_with": round(with_them, 4),
        "kernel_cpu_share_without": round(without, 4),
        "kernel_updates_per_s": round(pictures / len(WIDGETS) / MEASURED_S, 2),
    }


@contextmanager
def _running_kernel() -> Iterator[Kernel]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(Path(__file__).parents[1]), stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(START_S)
        assert isinstance(manager.provisioner, LocalProvisioner)
        assert manager.provisioner.pid
        yield Kernel(client, manager.provisioner.pid)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


class Kernel:
    """What a browser makes of a kernel."""

    def __init__(self, client: BlockingKernelClient, pid: int) -> None:
        self._client = client
        self._pid = pid
        self.shown: list[str] = []
        """Widgets that are displayed, by the names that browsers call them."""
        self._pictures = 0

    def run(self, source: str) -> None:
        """A cell, to its end."""
        reply = self._client.execute_interactive(source, output_hook=self._hear, timeout=START_S)
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"]["traceback"])

    def see(self, views: int) -> None:
        """Say how often each widget is seen, and let things settle."""
        for name in self.shown:
            data = {"method": "update", "state": {"_view_count": views}, "buffer_paths": []}
            self._client.shell_channel.send(
                self._client.session.msg("comm_msg", {"comm_id": name, "data": data})
            )
        self.listen(WARM_UP_S)

    def measure(self) -> tuple[float, int]:
        """The kernel's share of a core for a while, and the pictures that came meanwhile."""
        began_s, before_s = time.monotonic(), cpu_s(self._pid)
        self._pictures = 0
        self.listen(MEASURED_S)
        took_s = time.monotonic() - began_s
        return (cpu_s(self._pid) - before_s) / took_s, self._pictures

    def listen(self, seconds: float) -> None:
        """Read what comes for so long."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                self._hear(self._client.get_iopub_msg(timeout=left_s))
            except Empty:
                return

    def _hear(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "display_data" and VIEW_TYPE in content["data"]:
            self.shown.append(content["data"][VIEW_TYPE]["model_id"])
        elif kind == "comm_msg" and "picture" in content["data"].get("state", {}):
            self._pictures += 1
