"""A Prometheus server's configuration: a pool's own jobs in it, and everybody else's left alone.

A pool ``lab`` has two jobs: ``lab/replicas``, what the engines export, and ``lab/pool``, what
:mod:`workbench.metrics.exporter` does. Everything here blocks, needs no other program than
Prometheus, and says in an error what did not work.
"""

from workbench.prometheus.config import update_prometheus_config, write_config_file
from workbench.prometheus.server import PrometheusError, reload_prometheus
from workbench.prometheus.targets import write_targets

__all__ = [
    "PrometheusError",
    "reload_prometheus",
    "update_prometheus_config",
    "write_config_file",
    "write_targets",
]
