"""Loader hosts that Ray places: `penstock host` on the machines of a Ray cluster.

    from penstock.ray import LoaderHosts

    with LoaderHosts(hosts=4, cpus_per_host=16, join="trainer:7077", secret_file="hosts.secret"):
        ...                             # the session that listens there, in this program or another one

Each host is a Ray actor in a placement group. Ray restarts a lost host, on another machine if necessary, and its autoscaler adds machines
if there are too few. All machines need this package.
"""

import contextlib
import dataclasses
import json
import logging
import os
import subprocess
import sys
import threading
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

import ray
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from penstock._errors import usage_error

__all__ = ["LoaderHosts"]

AGAIN_AFTER = 1.0  # seconds between two processes of a host
MISTAKES = (2, 78)  # exit codes of `penstock host` after which a restart would not help

# Executes a program that gets SIGTERM when its parent dies, because Ray kills actors with SIGKILL.
TIED = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class LoaderHosts:
    """Runs loader hosts on a Ray cluster, until stop() or the end of the `with` block.

    The constructor does not wait: hosts join the session once Ray has placed them and the session listens. A host ends with its session.

    Args:
        hosts: how many.
        cpus_per_host: CPUs that each host reserves in Ray.
        join: where the session listens, as seen from the hosts: "ADDRESS:PORT". A list: several sessions share the workers of the hosts.
        secret_file: file with the session's secret. It is read here; Ray's own connections carry its contents to the hosts.
        insecure: join without a secret and without encryption.
        workers: the number of workers on each host; by default one per CPU.
        data: where the session's folders are on the hosts: {"/data": "/mnt/data"}. Hosts then read no other folders.
        resources: other resources that each host reserves, for choosing machines: {"cpu_machine": 1}.
        name: hosts are called NAME-0, NAME-1, ...
        drain: how many seconds a leaving host has to finish its batches. Must exceed the session's [loader.hosts] drain.

    Attributes:
        failures: why hosts have ended unexpectedly, by name. Also in the log.
    """

    def __init__(
        self,
        hosts: int,
        cpus_per_host: float,
        join: Union[str, Sequence[str]],
        *,
        secret_file: Union[str, "os.PathLike[str]", None] = None,
        insecure: bool = False,
        workers: Optional[int] = None,
        data: Optional[Mapping[str, str]] = None,
        resources: Optional[Mapping[str, float]] = None,
        name: str = "ray",
        drain: float = 30.0,
    ) -> None:
        if (secret_file is None) != insecure:
            raise usage_error("LoaderHosts needs the secret_file of the session's [loader.hosts], or insecure=True, and not both")
        if cpus_per_host <= 0:
            raise usage_error(f"cpus_per_host={cpus_per_host}: a host needs CPUs")
        self._options = ["--workers", str(workers or max(1, int(cpus_per_host)))]
        for session in [join] if isinstance(join, str) else join:
            self._options += ["--join", session]
        for ours, theirs in (data or {}).items():
            self._options += ["--data", f"{ours}={theirs}"]
        self._secret = None if secret_file is None else _Secret.of_file(secret_file)
        self._bundle = {**(resources or {}), "CPU": cpus_per_host}
        self._name, self._drain = name, drain
        self._groups: list[tuple[Any, int]] = []  # each with its number of bundles
        self._hosts: list[_Placed] = []
        self._placed = 0  # running total
        self.failures: dict[str, str] = {}
        self.scale(hosts)

    @property
    def names(self) -> list[str]:
        """The names of the hosts that are running or waiting for a machine."""
        return [host.name for host in self._running()]

    def scale(self, hosts: int) -> None:
        """Changes the number of hosts. Additional hosts get their own placement group. Surplus hosts finish their batches first, and this
        call waits for them. Ray gets their CPUs back when all hosts of their placement group have left."""
        if hosts < 0:
            raise usage_error(f"scale({hosts}): there cannot be fewer than 0 hosts")
        stay = self._running()[:hosts]
        self._remove([host for host in self._hosts if host not in stay])
        places = self._free_places()[: hosts - len(stay)]
        missing = hosts - len(stay) - len(places)
        if missing:
            group = placement_group([dict(self._bundle)] * missing, strategy="SPREAD")
            self._groups.append((group, missing))
            places += [(group, bundle) for bundle in range(missing)]
        for group, bundle in places:
            self._place(group, bundle)

    def stop(self) -> None:
        """All hosts finish their batches and leave; Ray gets their CPUs back."""
        if ray.is_initialized():
            self.scale(0)

    def __enter__(self) -> "LoaderHosts":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _running(self) -> "list[_Placed]":
        done = [host.done for host in self._hosts]
        _, pending = ray.wait(done, num_returns=len(done), timeout=0) if done else ([], [])
        return [host for host in self._hosts if host.done in pending]

    def _free_places(self) -> list[tuple[Any, int]]:
        taken = [(host.group, host.bundle) for host in self._hosts]
        return [(group, bundle) for group, count in self._groups for bundle in range(count) if (group, bundle) not in taken]

    def _place(self, group: Any, bundle: int) -> None:
        name, self._placed = f"{self._name}-{self._placed}", self._placed + 1
        others = {what: amount for what, amount in self._bundle.items() if what != "CPU"}
        # If the actor's process is lost, Ray repeats its calls in a new one.
        actor = (
            ray.remote(_Host)
            .options(
                num_cpus=self._bundle["CPU"],
                resources=others,
                max_restarts=-1,
                max_task_retries=-1,
                max_concurrency=2,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle),
            )
            .remote()
        )
        # Pass the secret with the call: Ray stores the arguments of an actor's constructor in the cluster.
        done = actor.run.remote([*self._options, "--name", name], self._secret)
        host = _Placed(name, group, bundle, actor, done)
        self._hosts.append(host)
        done.future().add_done_callback(lambda future: self._ended(host, future))

    def _ended(self, host: "_Placed", future: Any) -> None:
        """Runs on one of Ray's threads."""
        if host not in self._hosts:  # the host was asked to leave
            return
        failed = future.exception()
        why = str(getattr(failed, "cause", failed) if failed else future.result() or "")
        if why:
            self.failures[host.name] = why
            logging.getLogger("penstock").warning("loader host %s has ended: %s", host.name, why)

    def _remove(self, leaving: "list[_Placed]") -> None:
        self._hosts = [host for host in self._hosts if host not in leaving]
        placed = [host for host in leaving if placement_group_table(host.group)["state"] == "CREATED"]  # the others have not started
        calls = [call for host in placed for call in (host.actor.leave.remote(), host.done)]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=self._drain)
        for host in leaving:
            ray.kill(host.actor)
        used = [host.group for host in self._hosts]
        for group, _ in self._groups:
            if group not in used:
                remove_placement_group(group)
        self._groups = [(group, count) for group, count in self._groups if group in used]


@dataclasses.dataclass(frozen=True, eq=False)
class _Placed:
    name: str
    group: Any
    bundle: int
    actor: Any
    done: Any  # the result of run()


class _Secret:
    """A secret that can be pickled, but is never printed."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def of_file(cls, path: Union[str, "os.PathLike[str]"]) -> "_Secret":
        with open(path) as file:
            return cls(file.read().strip())

    @contextlib.contextmanager
    def as_file(self) -> Iterator[int]:
        """The secret in an unnamed file that only its owner may read."""
        fd = os.memfd_create("penstock-secret")
        try:
            os.fchmod(fd, 0o600)
            os.write(fd, self.text.encode())
            yield fd
        finally:
            os.close(fd)


class _Host:
    """The Ray actor: keeps a `penstock host` running. Its two calls run at the same time."""

    def __init__(self) -> None:
        self._leaves = threading.Event()
        self._process: Optional["subprocess.Popen[bytes]"] = None

    def run(self, options: list[str], secret: Optional[_Secret]) -> Optional[str]:
        """Runs until the host has left or its session is over. If the session refused the host, returns the reason."""
        with contextlib.ExitStack() as stack:
            command, fds = [sys.executable, "-m", "penstock", "host", "--json", *options], list[int]()
            if secret is None:
                command.append("--insecure")
            else:
                fds.append(stack.enter_context(secret.as_file()))
                command += ["--secret-file", f"/proc/self/fd/{fds[0]}"]
            while not self._leaves.is_set():
                tied = [sys.executable, "-S", "-E", "-c", TIED, str(os.getpid())]
                self._process = process = subprocess.Popen(tied + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=fds)
                if self._leaves.is_set():
                    process.terminate()
                said, _ = process.communicate()
                if process.returncode == 0:
                    return None
                if process.returncode in MISTAKES:
                    return message_of(said)
                self._leaves.wait(AGAIN_AFTER)
        return None

    def leave(self) -> None:
        self._leaves.set()
        if self._process is not None:
            self._process.terminate()


def message_of(said: bytes) -> str:
    try:
        return str(json.loads(said)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return said.decode("utf-8", "replace").strip() or "its arguments are wrong; its log says why"
