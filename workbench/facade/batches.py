"""Batches of rollouts, as a :class:`workbench.facade.workbench.Workbench` begins them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.cluster.verbs import PoolVerbs
from workbench.facade.handle import Rollout

if TYPE_CHECKING:
    import weakref
    from pathlib import Path

    from workbench.facade.opening import Opened
    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.rewards import Reward
    from workbench.rollout.run import Batch
    from workbench.rollout.tasks import Tasks
    from workbench.types import SamplingParams


class Batches(PoolVerbs):
    """The part of a workbench that plays rollouts."""

    _pool: Opened
    _progress: bool
    _rollouts: weakref.WeakSet[Rollout]

    def rollout(
        self,
        tasks: Tasks,
        agent: str | type[AgentLoopBase] = "single_turn",
        *,
        n: int = 1,
        sampling_params: SamplingParams | None = None,
        reward: Reward | None = None,
        timeout_s: float | None = None,
        keep: str | Path | None = None,
        retry_failed: bool = False,
        **more: Any,
    ) -> Rollout:
        """Begin a batch of rollouts and return its handle at once.

        Args:
            tasks: strings, mappings, a DataFrame, a data set, or a path to JSON lines or parquet.
            agent: ``single_turn``, ``tool``, another registered name, or a loop class.
            n: rollouts per task.
            sampling_params: by the engine's names.
            reward: of a finished trajectory.
            timeout_s: wall time of one rollout.
            keep: a ``.jsonl`` file that rollouts are written to as they end. What it has of this
                batch already is not played again, so that the same call goes on after a crash. Of
                what differs only agent, model and tasks are noticed.
            retry_failed: with ``keep``, play again what failed before.
            more: what becomes of rollouts that fail or take long (``max_attempts``, ``on_failure``,
                ``spare``, ``concurrency``; see :class:`workbench.rollout.ledger.BatchRules`), of
                prompts that are too long (``max_prompt_tokens``, ``overlong``; see
                :class:`workbench.rollout.context.ContextRules`), and settings of the agent loop
                (``tools``, ``preamble``, ``limits``, …).

        Raises:
            ConfigError: unknown agent, or a setting that it does not have.
            TaskError: a task lacks a field that the agent needs.
        """
        given = {
            "agent": agent,
            "n": n,
            "sampling_params": sampling_params,
            "reward": reward,
            "timeout_s": timeout_s,
        }
        options, pool, limits = given | more, self._pool, self.manager.limits
        batch = self._call(pool.players.prepare(pool.client, limits, tasks, options))
        return self._play(batch, keep, retry_failed=retry_failed)

    def _play(
        self, batch: Batch, keep: str | Path | None, *, retry_failed: bool = False
    ) -> Rollout:
        # As many as the engines' batches hold, so that none waits inside an engine.
        capacity = self.manager.limits.max_num_seqs * max(1, len(self.weight_versions()))
        pool = self._pool
        run = self._call(
            pool.players.begin(pool.client, capacity, batch, keep, retry_failed=retry_failed)
        )
        decode = self._call(pool.players.renderer()).decode
        again = partial(self._play, keep=keep)
        rollout = Rollout(run, pool.reach, progress=self._progress, again=again, decode=decode)
        self._rollouts.add(rollout)
        return rollout
