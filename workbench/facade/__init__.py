"""The pool as one object for notebooks and scripts."""

from workbench.facade.asking import Reply
from workbench.facade.handle import Rollout
from workbench.facade.workbench import Workbench

__all__ = ["Reply", "Rollout", "Workbench"]
