"""A simulated engine: deterministic tokens, steps that take time, faults on demand.

It is for tests of what surrounds an engine and for measuring our own overhead, never a stand-in
for a real one in a demo or in a claim about serving.

* ``tokens.py``, ``cache.py``, ``scheduler.py`` and ``faults.py`` decide, without a clock or a task;
* ``engine.py`` is the asyncio shell around them. It knows no time but the running loop's, and so
  runs under :mod:`workbench.engines.virtual_clock` too.
"""

from workbench.engines.simulated.args import SimulatedArgs
from workbench.engines.simulated.engine import SimulatedEngine
from workbench.engines.simulated.faults import Fault, FaultKind

__all__ = ["Fault", "FaultKind", "SimulatedArgs", "SimulatedEngine"]
