"""One process' tie to Redis: a producer id, two connections, three threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import redis

from queue_client.connecting import check_reachable, greet, open_connection, unavailable
from queue_client.deadlines import Deadlines
from queue_client.errors import ClientClosed
from queue_client.flight import Flight, Job, Told
from queue_client.futures import RewardFuture
from queue_client.inbox import Inbox
from queue_client.jobs import Parcel
from queue_client.options import Options
from queue_client.outage import Outage
from queue_client.outcome import Outcome
from queue_client.protocol import new_producer_id, reply_key
from queue_client.replies import Reader
from queue_client.room import Room
from queue_client.sender import Sender

JOIN_S = 5.0


class Link:
    """Made at first use in each process; knows every future of that process.

    Raises PoolUnavailable if Redis cannot be reached within the connect timeout.
    """

    def __init__(self, options: Options, told: Told) -> None:
        self.options = options
        self.producer = new_producer_id()
        self.reply_key = reply_key(self.producer)
        self.closing = threading.Event()
        self.room = Room(options.max_in_flight)
        self.flight = Flight(self.room, told)
        self.inbox = Inbox(options.gather_s)
        check_reachable(options)
        submit = open_connection(options, role="submit")
        self.clock = greet(submit, options)
        self.server = self.server_now(submit)
        self.reader = Reader(self, open_connection(options, role="replies"))
        self.sender = Sender(self, submit)
        self.deadlines = Deadlines(self)
        self._threads = [
            threading.Thread(target=part.run, name=f"rewardpool-{name}", daemon=True)
            for name, part in (
                ("submit", self.sender),
                ("replies", self.reader),
                ("deadlines", self.deadlines),
            )
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, parcel: Parcel) -> None:
        """Hand futures over whose places in `room` are taken."""
        if self.closing.is_set():
            self.room.give_back(len(parcel.futures))
            raise ClientClosed("the client is closed")
        self.flight.expect(parcel.futures)
        self.inbox.put(parcel)
        for deadline in {future.deadline for future in parcel.futures}:
            self.deadlines.note(deadline)

    def give_up(self, future: RewardFuture) -> None:
        """A future was cancelled: free its place and take its row off the pool."""
        job = self.flight.get(future.job_id or "")
        if self.flight.release(future) and job is not None:
            self.inbox.give_up(job.id, job.queue, future.row)

    def end(self, future: RewardFuture, outcome: Outcome) -> bool:
        """Resolve a future from this side and take its row off the pool."""
        job = self.flight.get(future.job_id or "")
        ended = self.flight.end(future, outcome)
        if ended and job is not None:
            self.inbox.give_up(job.id, job.queue, future.row)
        return ended

    def fail_job(self, job: Job, error: Exception) -> None:
        """Resolve the rest of a job with an error and take it off the pool."""
        for future in list(job.futures):
            if future is not None and self.flight.fail(future, error):
                self.inbox.give_up(job.id, job.queue, future.row)

    def bear(self, outage: Outage, error: Exception) -> None:
        """Pause after a failure; one that lasts too long ends everything in flight."""
        pause_s = outage.failed(error)
        if outage.too_long:
            self._fail_all(unavailable(error, self.options.url))
        self.closing.wait(pause_s)

    def renew(self, client: redis.Redis) -> None:
        """After an outage: the server may be another one, with another clock."""
        self.clock = greet(client, self.options)
        self.server = self.server_now(client)

    def server_now(self, client: redis.Redis) -> str | None:
        """Return the id of the server's current run, or None where an ACL hides it."""
        try:
            facts = client.info("server")
        except redis.exceptions.NoPermissionError:
            return None
        return str(facts.get("run_id"))

    def shut(self) -> None:
        """Begin to close, without waiting: pending calls end with ClientClosed."""
        self.closing.set()
        self.room.close()
        self._fail_all(ClientClosed("the client was closed while a call was pending"))
        self.inbox.close()
        self.deadlines.wake()
        self.flight.occupied.set()  # the reader may wait for work

    def close(self) -> None:
        """Close and wait until the threads are gone."""
        self.shut()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_S)

    def orphan(self) -> Sequence[RewardFuture]:
        """After a fork, in the child: return the futures that are the parent's."""
        return self.flight.orphans()

    def _fail_all(self, error: Exception) -> None:
        for future in self.flight.futures():
            self.flight.fail(future, error)
