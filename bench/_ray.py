"""No-op calls a second of one Ray actor: `_ray.py CALLS`, in an environment with Ray."""

from __future__ import annotations

import sys
import time

import ray


@ray.remote
class Actor:
    """Does nothing."""

    def call(self) -> None:
        """Do nothing."""


def main(calls: int) -> None:
    """Print calls a second, pipelined: all sent, then all awaited."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    actor = Actor.remote()
    ray.get([actor.call.remote() for _ in range(200)])
    began = time.perf_counter()
    ray.get([actor.call.remote() for _ in range(calls)])
    print(calls / (time.perf_counter() - began))
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
