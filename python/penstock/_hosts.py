"""Workers on loader hosts (`penstock host`): what a program and its hosts must have in common, and how a host starts workers with its
own Python. Used by _pool.py in the program, by _command.py on hosts, and by workers, to find out whether they run on a host."""

import os
import sys
from collections.abc import Sequence
from typing import Any, Optional, Union

from penstock._errors import config_error

__all__ = ["COMMAND", "KIND", "Hosts", "facts", "on_host", "own_program", "path_on_host", "settings_of", "variables_of_workers"]

KIND = "Python"
COMMAND = (sys.executable, "-P", "-m", "penstock.worker")
ON_HOST = "PENSTOCK_ON_HOST"  # environment variable of workers
MARKS = "PENSTOCK_HOST_MARKS"  # environment variable of workers: a file (_loading.Marks)
Hosts = Union[str, Sequence[str]]


def facts(packages: Sequence[str]) -> dict[str, str]:
    """The versions of Python and of the installed packages among these."""
    import importlib.metadata  # imported here, because workers do not need it
    import platform

    found = {"Python": platform.python_version()}
    for each in packages:
        try:
            found[each] = importlib.metadata.version(each)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def settings_of(hosts: Optional[Hosts], secret_file: Any) -> dict[str, Any]:
    """The config overrides for the arguments hosts and hosts_secret_file of a pool or loader."""
    if hosts is None:
        if secret_file is not None:
            raise config_error("hosts_secret_file is the secret of loader hosts: pass hosts, too")
        return {}
    own: dict[str, Any] = {"loader.hosts.listen": hosts} if isinstance(hosts, str) else {"loader.hosts.connect": list(hosts)}
    if secret_file is not None:
        own["loader.hosts.secret_file"] = os.path.abspath(secret_file)
    return own


def variables_of_workers() -> dict[str, str]:
    """Variables in the environment of every worker, on hosts and on the program's machine."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    known = os.environ.get("PYTHONPATH")
    threads = {f"{variable}_NUM_THREADS": "1" for variable in ("OMP", "OPENBLAS", "MKL")}
    return {"PYTHONPATH": here if not known else here + os.pathsep + known, **threads}


def own_program() -> dict[str, Any]:
    """The program that `penstock host` starts for workers (tools/penstock/host). Called on hosts."""
    environment = {**variables_of_workers(), ON_HOST: "1"}
    return {"kind": KIND, "command": COMMAND, "environment": environment, "facts": facts(["torch"])}


def on_host() -> bool:
    """Whether this is a worker on a loader host."""
    return ON_HOST in os.environ


def path_on_host(of_program: Sequence[str]) -> list[str]:
    """A worker's import path on a host: the host's own, then the folders of the program that exist here, too."""
    return sys.path + [each for each in of_program if each not in sys.path and os.path.exists(each)]
