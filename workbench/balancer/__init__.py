"""The balancer: one routing table and its clients behind plain calls."""

from workbench.balancer.balancer import GlobalRequestLoadBalancer
from workbench.balancer.host import BalancerHost

__all__ = ["BalancerHost", "GlobalRequestLoadBalancer"]
