"""Functions of the program that are pickled once: a job sees what the program has at that time, and nothing of other jobs."""

import math
import os
import random
import struct
import unittest

from package import *
from penstock import _kept, _parts

SEED = int(os.environ.get("PENSTOCK_TEST_SEED") or random.randrange(1 << 30))

factor, listed = 2, [1]
count = 0


def scale(value):
    return factor * value


def scale_by_helper(value, more=1):
    return math.floor(scale(value)) + more


def annotated(value: int) -> "int":
    """Looks at a global with a nested function."""
    return [(lambda: factor)() for _ in range(value)]


def sum_listed():
    return sum(listed)


def counts():
    global count
    count += 1
    return count


def remembers():
    remembers.calls = getattr(remembers, "calls", 0) + 1
    return remembers.calls


def through_globals():
    globals()["count"] += 1
    return count


def factorial(value):
    return 1 if value < 2 else value * factorial(value - 1)


def received(function, *arguments):
    """The call as a worker gets it."""
    parts = _parts.pickled_call(function, arguments, {})
    whole = bytes(parts[0])
    return _parts.unpickled(_parts.split(struct.pack("<2Q", 1, len(whole)) + bytes(48) + whole))


def in_a_worker(function, *arguments):
    function, positional, named = received(function, *arguments)
    return function(*positional, **named)


def is_kept(function):
    return _kept.kept(function) is not None


class KeptTest(unittest.TestCase):
    def test_a_function_is_pickled_and_unpickled_once(self):
        for each in (scale, scale_by_helper, annotated, factorial):
            self.assertIs(_kept.kept(each), _kept.kept(each), each)
            self.assertIs(received(each, 3)[0], received(each, 4)[0], each)
            self.assertEqual(in_a_worker(each, 5), each(5))

    def test_what_may_change_unseen_is_pickled_with_each_job(self):
        offset = 1
        for each in (sum_listed, counts, remembers, through_globals, lambda: 1, lambda: offset):
            self.assertFalse(is_kept(each), each)
        listed.append(5)
        self.assertEqual(in_a_worker(sum_listed), sum(listed))
        for each in (counts, remembers, through_globals):  # a job sees nothing of the one before
            self.assertEqual([in_a_worker(each), in_a_worker(each)], [1, 1], each)

    def test_a_worker_keeps_a_bounded_number_of_functions(self):
        program = dict(globals())
        for number in range(_kept.MOST_RECEIVED + 20):
            exec(f"def numbered(): return {number}", program)
            self.assertEqual(in_a_worker(program["numbered"]), number)
        self.assertLessEqual(len(_kept._received), _kept.MOST_RECEIVED)

    def test_a_job_sees_the_program_as_it_is_whatever_changes_in_between(self):
        print("seed", SEED)
        draw = random.Random(SEED)
        program = {"__name__": "__main__", "math": math}
        exec(
            "limit = 3\n"
            "def helper(value): return value + limit\n"
            "def job(value, more=1): return (helper(value), math.floor(value / 2), more, limit)\n"
            "def other(value): return ('other', value)\n",
            program,
        )
        job = program["job"]

        def redefine():
            exec(f"def job(value, more={draw.randrange(9)}): return ({draw.randrange(9)}, helper(value), more)", program)

        changes = [
            lambda: program.update(limit=draw.choice([1, 1.0, True, "x", None, [draw.randrange(9)], {1: draw.randrange(9)}])),
            lambda: exec(f"def helper(value): return (value, {draw.randrange(9)}, limit)", program),
            lambda: program.update(helper=draw.choice([abs, program["other"], lambda value: ("lambda", value), len.__class__])),
            lambda: setattr(program["job"], "__defaults__", (draw.choice([1, 1.0, [2], True]),)),
            lambda: setattr(program["job"], "__code__", draw.choice([program["other"].__code__, job.__code__])),
            lambda: program.update(math=draw.choice([math, program])),
            lambda: setattr(program["job"], "note", draw.randrange(9)),
            lambda: program["job"].__annotations__.update(value=draw.choice([int, "int", KeptTest])),
            redefine,
        ]

        def outcome(function, *arguments):
            try:
                return repr(function(*arguments))
            except Exception as raised:
                return type(raised)

        kept = 0
        for _ in range(3000):
            if draw.random() < 0.3:
                draw.choice(changes)()
            if draw.random() < 0.1:  # back to something that can be kept
                program.update(limit=draw.randrange(100), math=math)
                exec("def helper(value): return value * limit", program)
                redefine()
            value = draw.randrange(100)
            job = program["job"]
            self.assertEqual(outcome(in_a_worker, job, value), outcome(job, value))
            self.assertEqual(received(job)[0].__annotations__, job.__annotations__)
            kept += is_kept(job)
        self.assertGreater(kept, 300)


if __name__ == "__main__":
    unittest.main()
