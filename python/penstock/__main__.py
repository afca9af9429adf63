"""`python -m penstock`: the command `penstock`, which starts Python workers with this interpreter."""

from penstock._command import main

main()
