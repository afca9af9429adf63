"""The main function of test files in Python: a test that ctest runs alone and that is skipped is skipped for ctest, too."""

import sys
import unittest


def run_tests():
    result = unittest.main(verbosity=2, exit=False).result
    if result.wasSuccessful() and len(result.skipped) == result.testsRun > 0:
        sys.exit(77)  # SKIP_RETURN_CODE
    sys.exit(not result.wasSuccessful())
