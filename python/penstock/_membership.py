"""The group that a penstock.torch.DataLoader forms with the loaders of the other ranks; joined on first use. Used by _supervised.py."""

import os
from typing import Any, Optional

__all__ = ["Membership"]


class Membership:
    """Whether a loader joins a group, and the group that it has joined. A copy in another process is in no group.

    Args:
        joins: the loader's argument group.
    """

    def __init__(self, joins: bool) -> None:
        self._joins, self._pid = joins, os.getpid()
        self._group: Any = None

    def group_of(self, loader: Any) -> Any:
        """The group, joined on the first call; None if there is none."""
        if not self._joins or self._pid != os.getpid():
            return None
        if self._group is None:
            from penstock._groups import group_of

            self._group = group_of(loader)
        return self._group

    def name_of_workers(self, name: Optional[str]) -> Optional[str]:
        """Ranks of one host need different names for the verbs."""
        if self._group is None or self._group.world_size == 1:
            return name
        return f"{name or 'loader'}-rank{self._group.rank}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_group": None}
