"""The token client and what it needs of a balancer and of replicas."""

from workbench.client.channel import ReplicaPort
from workbench.client.client import BalancerPort, LLMServerClient

__all__ = ["BalancerPort", "LLMServerClient", "ReplicaPort"]
