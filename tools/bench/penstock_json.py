"""Runs `penstock` for the measurements in this folder."""

import json
import os
import resource
import subprocess
import sys


def penstock_in(folder):
    """A function that runs `penstock` from this folder, and returns the JSON that it prints. A command that fails ends the measurement."""
    def penstock(*arguments):
        done = subprocess.run([os.path.join(folder, "penstock"), *arguments, "--json", "--quiet"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr + done.stdout)
        return json.loads(done.stdout)
    return penstock


def processor_seconds():
    """The processor time of all children that have ended, and of their descendants."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
