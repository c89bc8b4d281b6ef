"""A client whose every message can be held up, lost or repeated."""

from __future__ import annotations

from workbench.client.leases import LeaseBook
from workbench.errors import NoReplicaError
from workbench.routing.messages import Outcome
from workbench.types import Lease


class Peer:
    """A client, and the wire to the balancer: one report and one long poll at a time."""

    def __init__(self, name):
        self.book = LeaseBook(name)
        self.held: dict[int, Lease] = {}
        self.over: list[Lease] = []
        self.waiting: set[int] = set()
        self.sent = self.answer = self.news = None
        self.past = []

    def begin(self, session, tokens, priority):
        lease = self.book.take(session, tokens)
        if lease is None:
            self.waiting.add(self.book.want(session, tokens, priority, (tokens, 7)))
        else:
            self.hold(lease)

    def hold(self, lease):
        assert lease.lease_id not in self.held
        assert lease.lease_id not in {over.lease_id for over in self.over}
        self.held[lease.lease_id] = lease

    def end(self, lease, outcome=Outcome.OK):
        used = {"sampled_tokens": 3, "cached_tokens": 4, "context_tokens": 9}
        assert self.book.give_back(lease, outcome, **used)
        assert not self.book.give_back(lease, outcome)
        del self.held[lease.lease_id]
        self.over.append(lease)

    def hear(self, reply):
        for lease_id, answer in self.book.apply(reply):
            self.waiting.remove(lease_id)
            if isinstance(answer, Lease):
                self.hold(answer)
            else:
                assert isinstance(answer, NoReplicaError)

    def lose(self):
        """The report or its answer does not arrive, and nobody knows which."""
        self.book.lost(self.sent)
        self.sent = self.answer = None
