"""Functions of the program that are pickled once: a job sees the program's state at that time, and no state of other jobs."""

import math
import os
import random
import struct
import threading
import unittest
import unittest.mock
import warnings

from package import *
from penstock import _kept, _parts

SEED = int(os.environ.get("PENSTOCK_TEST_SEED") or random.randrange(1 << 30))

factor, listed, table = 2, [1], {"a": 1}
count = 0
lookup, drawn = table.get, random.random
large = b"x" * (_kept.LONGEST + 1)


def scale(value):
    return factor * value


def scale_by_helper(value, more=1):
    return math.floor(scale(value)) + more


def annotated(value: int) -> "int":
    """Reads a global in a nested function."""
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


def looks_up():
    return lookup("a")


def draws():
    return drawn()


def through_its_dictionary():
    through_its_dictionary.__dict__["calls"] = through_its_dictionary.__dict__.get("calls", 0) + 1
    return through_its_dictionary.__dict__["calls"]


def sums_large():
    return sum(large[:2])


def bumps():
    global count
    count += 1


def calls(function):
    function()
    return count


def is_scale(function):
    return function is scale


def warns():
    warnings.warn("look", stacklevel=1)


def factorial(value):
    return 1 if value < 2 else value * factorial(value - 1)


def received(function, *arguments):
    """The call as a worker receives it."""
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

    def test_a_function_whose_state_can_change_unseen_is_pickled_with_each_job(self):
        offset = 1
        for each in (sum_listed, counts, remembers, through_globals, looks_up, draws, through_its_dictionary, sums_large, lambda: 1, lambda: offset):
            self.assertFalse(is_kept(each), each)
        listed.append(5)
        self.assertEqual(in_a_worker(sum_listed), sum(listed))
        for each in (counts, remembers, through_globals, through_its_dictionary):  # a job sees no state of the previous job
            self.assertEqual([in_a_worker(each), in_a_worker(each)], [1, 1], each)

    def test_a_function_shares_its_globals_with_the_objects_in_its_arguments(self):
        self.assertEqual([in_a_worker(calls, bumps), in_a_worker(calls, bumps)], [1, 1])
        self.assertTrue(in_a_worker(is_scale, scale))

    def test_each_job_shows_its_warnings(self):
        self.assertTrue(is_kept(warns))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            for _ in range(3):
                in_a_worker(warns)
        self.assertEqual(len(seen), 3)

    def test_a_pickle_from_before_a_change_is_not_used_after_it(self):
        program = {"__name__": "__main__"}
        exec("limit = 1\ndef job(): return limit", program)
        dumped, go_on = threading.Event(), threading.Event()
        pickle_it = _kept._by_value.dumps

        def slow_dumps(value):
            whole = pickle_it(value)
            dumped.set()
            go_on.wait(60)
            return whole

        with unittest.mock.patch.object(_kept._by_value, "dumps", slow_dumps):
            first = threading.Thread(target=_kept.kept, args=[program["job"]])
            first.start()
            self.assertTrue(dumped.wait(60))
            program["limit"] = 2
            go_on.set()
            first.join()
        self.assertEqual(in_a_worker(program["job"]), 2)

    def test_a_worker_keeps_a_bounded_number_of_functions(self):
        program = dict(globals())
        for number in range(_kept.MOST + 20):
            exec(f"def numbered(): return {number}", program)
            self.assertEqual(in_a_worker(program["numbered"]), number)
        self.assertLessEqual(max(len(_kept._received), len(_kept._known)), _kept.MOST)

    def test_a_job_sees_the_current_state_of_the_program_whatever_changes_in_between(self):
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
            if draw.random() < 0.1:  # back to a state that can be kept
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
