"""How many workers a loader has, which of them are on hosts, and which one loads each shard of an iterable dataset. Used by
_workers.py and _loader.py."""

import time
from collections.abc import Sequence
from typing import Any, Optional

__all__ = ["Homes", "SeenWorkers"]

LOOK_EVERY = 0.5  # seconds between looks for workers and hosts that have joined or left
ON_HOSTS_MAX = 256  # how many workers on hosts a session can have
GONE = ("draining", "stopped", "failed")  # states of workers that load no further batch


class Homes:
    """Shards are spread evenly. One moves only if its worker is gone, or if another has two shards fewer.

    Args:
        nowhere: a number that no worker has: batches wait for it until there is another worker.
    """

    def __init__(self, shards: int, nowhere: int) -> None:
        self._of = [nowhere] * shards

    def of(self, shard: int) -> int:
        return self._of[shard]

    def spread(self, workers: Sequence[int]) -> None:
        """Assigns each shard to one of `workers`, the workers that exist now."""
        if not workers:
            return  # no worker exists now; others will join
        held: dict[int, list[int]] = {worker: [] for worker in workers}
        homeless: list[int] = []

        def load(worker: int) -> int:
            return len(held[worker])

        for shard, home in enumerate(self._of):
            held.get(home, homeless).append(shard)
        for shard in homeless:
            held[min(held, key=load)].append(shard)
        while load(most := max(held, key=load)) - load(least := min(held, key=load)) > 1:
            held[least].append(held[most].pop())
        for worker, shards in held.items():
            for shard in shards:
                self._of[shard] = worker


class SeenWorkers:
    """A pool's workers, according to its status, which is read at most once in LOOK_EVERY seconds.

    Args:
        count: how many of them are not on hosts.
    """

    def __init__(self, pool: Any, count: int) -> None:
        self._pool = pool
        self._count, self._width, self._width_until, self._on_hosts_until = count, count, 0.0, 0.0
        self._on_hosts: list[int] = []
        self.last_on_hosts = int(pool._config["loader.limits.max"]) + ON_HOSTS_MAX  # the highest possible number of a worker on a host

    def width(self) -> int:
        """The number of workers that can load, including those on hosts and those that an operator has added; at least 1. Without
        hosts, the workers that the loader starts with count even before they are ready."""
        now = time.monotonic()
        if now > self._width_until:
            self._width_until = now + LOOK_EVERY
            ready = sum(each["state"] in ("ready", "busy") for each in self._pool.status()["workers"])
            self._width = ready if self._pool._has_hosts else max(ready, self._count)
        return max(self._width, 1)

    def on_hosts(self) -> Optional[list[int]]:
        """The numbers of the workers on hosts that load batches; None if they were looked up less than LOOK_EVERY ago."""
        now = time.monotonic()
        if now <= self._on_hosts_until:
            return None
        self._on_hosts_until = now + LOOK_EVERY
        status = self._pool.status()
        gone = {each["id"] for each in status["workers"] if each["state"] in GONE}
        self._on_hosts = [worker for host in status["hosts"] for worker in host["workers"] if worker not in gone]
        return self._on_hosts

    def last_seen_on_hosts(self) -> list[int]:
        """The workers on hosts, looked up at most LOOK_EVERY ago."""
        self.on_hosts()
        return self._on_hosts
