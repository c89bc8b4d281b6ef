"""The pool as one object for notebooks and scripts."""

from workbench.facade.asking import Reply
from workbench.facade.handle import Rollout
from workbench.facade.learner import Learner
from workbench.facade.stream import Stream
from workbench.facade.workbench import Workbench

__all__ = ["Learner", "Reply", "Rollout", "Stream", "Workbench"]
