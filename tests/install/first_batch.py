"""Prints the rows of a config file's first batch; run right after a wheel was installed."""

import sys

import penstock

with penstock.Session(sys.argv[1]) as session:
    for batch in session.epoch(0):
        print("rows", batch.rows, penstock.__version__)
        break
