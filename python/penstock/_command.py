"""The command `penstock` of a Python environment: executes the program inside the package."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "penstock")
    if not os.path.exists(program) and "PENSTOCK_BIN" in os.environ:  # in the build tree
        program = os.path.join(os.environ["PENSTOCK_BIN"], "penstock")
    asks_hosts = sys.argv[1:2] == ["doctor"] and any(one.startswith("--host") for one in sys.argv)
    if sys.argv[1:2] == ["host"] or asks_hosts:
        import json

        from penstock import _hosts

        os.environ["PENSTOCK_HOST_PROGRAM"] = json.dumps(_hosts.own_program())
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
