"""`python -m penstock`: the command `penstock`, with this Python for what it starts."""

from penstock._command import main

main()
