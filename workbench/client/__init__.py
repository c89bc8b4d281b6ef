"""The token client and what it needs of a balancer and of replicas."""

from workbench.client.channel import ReplicaPort
from workbench.client.client import LLMServerClient
from workbench.client.desk import BalancerPort
from workbench.client.fully_async import FullyAsyncLLMServerClient

__all__ = ["BalancerPort", "FullyAsyncLLMServerClient", "LLMServerClient", "ReplicaPort"]
