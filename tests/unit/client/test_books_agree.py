"""Whatever is lost between a client and the balancer, their books agree in the end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.balancer import GlobalRequestLoadBalancer
from workbench.client.leases import LeaseBook
from workbench.config import RoutingConfig
from workbench.routing.messages import Outcome
from workbench.types import Lease, ReplicaState

SESSIONS = ["a", "b", "c"]
REPLICAS = {"r0": None, "r1": None}


class Talk:
    """One balancer and some clients, whose words the test delivers, loses and delays."""

    def __init__(self, clients, capacity):
        self.rules = RoutingConfig(capacity=capacity, max_failures=2, recovery_s=0)
        self.books = [LeaseBook(f"client-{i}") for i in range(clients)]
        self.open = [[] for _ in self.books]
        self.wanted = [[] for _ in self.books]
        self.delayed = []
        self.epoch = 0
        self._live()

    def _live(self):
        self.epoch += 1
        self.balancer = GlobalRequestLoadBalancer(
            REPLICAS, rules=self.rules, epoch=self.epoch, clock=lambda: 0.0
        )

    def hear(self, client, reply):
        for lease_id, lease in self.books[client].apply(reply):
            assert isinstance(lease, Lease)
            if lease_id in self.wanted[client]:
                self.wanted[client].remove(lease_id)
            self.open[client].append(lease)

    def exchange(self, client, fate="heard"):
        """``fate``: heard, lost (before it was heard) or unanswered (after it)."""
        book = self.books[client]
        report = book.report()
        reply = None if fate == "lost" else self.balancer.exchange(report)
        if reply is None or fate == "unanswered":
            book.lost(report)
        elif reply.resync:
            book.lost(report)
            self.hear(client, reply)
        else:
            self.hear(client, reply)

    def watch(self, client, *, late=False):
        book = self.books[client]
        if book.epoch == 0:
            return
        if reply := self.balancer.news(book.owner, book.cursor):
            if late:
                self.delayed.append((client, reply))
            else:
                self.hear(client, reply)

    def settle(self):
        """Let everything that was said arrive."""
        for client, reply in self.delayed:
            self.hear(client, reply)
        self.delayed.clear()
        for _ in range(6):
            for client, book in enumerate(self.books):
                self.watch(client)
                if book.dirty:
                    self.exchange(client)

    def act(self, client, action, number):
        getattr(self, action)(client, number)

    def begin(self, client, number):
        book, session = self.books[client], SESSIONS[number % 3]
        if lease := book.take(session, 1):
            self.open[client].append(lease)
        else:
            self.wanted[client].append(book.want(session, 1))

    def end(self, client, number):
        if mine := self.open[client]:
            outcome = (Outcome.OK, Outcome.OK, Outcome.FAILED, Outcome.DIED)[number % 4]
            lease = mine.pop(number % len(mine))
            assert self.books[client].give_back(lease, outcome)
            assert not self.books[client].give_back(lease)

    def withdraw(self, client, _):
        if self.wanted[client]:
            self.books[client].withdraw(self.wanted[client].pop())

    def over(self, client, number):
        self.books[client].end_session(SESSIONS[number % 3])

    def move(self, _, number):
        session, replica_id = SESSIONS[number % 3], f"r{number % 2}"
        if session in self.balancer.pins() and self.ready(replica_id):
            self.balancer.move_session(session, replica_id)

    def state(self, _, number):
        state = (ReplicaState.READY, ReplicaState.DRAINING)[number % 2]
        self.balancer.set_state(f"r{number % 2}", state)

    def vanish(self, client, _):
        self.balancer.release_owner(self.books[client].owner)

    def restart(self, *_):
        self._live()

    def news(self, client, _):
        self.watch(client)

    def late_news(self, client, _):
        self.watch(client, late=True)

    def heard(self, client, _):
        self.exchange(client)

    def lost(self, client, _):
        self.exchange(client, "lost")

    def unanswered(self, client, _):
        self.exchange(client, "unanswered")

    def ready(self, replica_id):
        loads = {load.replica_id: load for load in self.balancer.snapshot().replicas}
        return loads[replica_id].state is ReplicaState.READY


ACTIONS = [
    *("begin", "begin", "end", "end", "heard", "heard", "news", "late_news"),
    *("withdraw", "over", "move", "state", "lost", "unanswered", "vanish", "restart"),
]


@settings(max_examples=300, deadline=None)
@given(
    clients=st.integers(1, 2),
    capacity=st.sampled_from([None, 1, 2]),
    story=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(ACTIONS), st.integers(0, 11)), max_size=40
    ),
)
def test_books_agree(clients, capacity, story):
    talk = Talk(clients, capacity)
    for client, action, number in story:
        talk.act(client % clients, action, number)
        talk.balancer.check()
    talk.settle()
    # What is open here is booked there, and nothing else is.
    open_here = sum(book.num_open for book in talk.books)
    assert talk.balancer.get_total_inflight() == open_here
    assert open_here == sum(len(mine) for mine in talk.open)
    # No turn waits while there is room; room is made by ending what is open.
    for replica_id in REPLICAS:
        talk.balancer.set_state(replica_id, ReplicaState.READY)
    for replica_id in talk.balancer.probes_due():
        talk.balancer.probed(replica_id)
    for _ in range(sum(len(wanted) for wanted in talk.wanted) + 1):
        for client, mine in enumerate(talk.open):
            while mine:
                assert talk.books[client].give_back(mine.pop())
        talk.settle()
    assert talk.wanted == [[] for _ in talk.books]
    for client, mine in enumerate(talk.open):
        while mine:
            assert talk.books[client].give_back(mine.pop())
    talk.settle()
    assert talk.balancer.get_total_inflight() == 0
    assert talk.balancer.snapshot().queued == 0
    talk.balancer.check()
