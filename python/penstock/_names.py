"""Names of pools and loaders, for `penstock status` and the other verbs: unique within the process. Used by _pool.py."""

import threading

__all__ = ["Name"]

LONGEST = 60  # characters of a name before "-2"


class Name:
    """A name in use, until give_back().

    Args:
        name: the pool's name.
        chosen: the program chose it, so it is used unchanged; otherwise "-2" and so on is appended if the name is in use.
    """

    def __init__(self, name: str, chosen: bool) -> None:
        with _reserving:
            used = {each.text for each in _in_use.copy()}
            self.text: str = name
            number = 1
            while not chosen and self.text in used:
                number += 1
                self.text = f"{name[:LONGEST]}-{number}"
            _in_use.add(self)

    def give_back(self) -> None:
        """Call when the pool has ended. Takes no lock, because the garbage collector may call it at any point."""
        _in_use.discard(self)


_reserving = threading.Lock()
_in_use: set[Name] = set()
