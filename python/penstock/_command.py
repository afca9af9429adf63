"""The command `penstock` of a Python environment: executes the program inside the package."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "penstock")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
