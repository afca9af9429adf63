"""Pools: an executor of the standard library that no job breaks; the faulty job is named, and no other job is affected."""

import asyncio
import collections
import concurrent.futures
import ctypes
import fnmatch
import functools
import gc
import itertools
import json
import threading
import time
import unittest.mock

import numpy
import penstock
from package import *
from penstock import _parts


def square(x):
    return x * x


def crash(*_):
    ctypes.string_at(0)


def inverse(x):
    return 1 / x


@functools.lru_cache(maxsize=7)
def fibonacci(x):
    return x if x < 2 else fibonacci(x - 1) + fibonacci(x - 2)


fibonacci.base = 2


class Caching:
    @functools.lru_cache
    def twice(self, x):
        return 2 * x


def cached_in_all_ways(x):
    return fibonacci(x), fibonacci.cache_parameters()["maxsize"], fibonacci.base, Caching().twice(x)


def leave(*_):
    os._exit(7)


def hang(*_):
    threading.Event().wait()


def eat_all_memory(*_):
    raise MemoryError("of the function")


class OddError(Exception):
    """Can be pickled but not unpickled."""

    def __init__(self, one, two):
        super().__init__("odd: %s %s" % (one, two))


def fail(kind, *args):
    raise kind(*args)


def recurse(turn=True):
    """Fails with a traceback of many different lines, so that it is printed whole."""
    return recurse_in_turn(turn)


def recurse_in_turn(turn):
    return recurse(turn)


def odd_one(x):
    """5 raises, 7 kills its worker, 9 returns too much."""
    if x == 5:
        raise KeyError("five")
    if x == 7:
        crash()
    return bytes(3 << 20) if x == 9 else x


class PoolTest(PackageTest):
    def pool(self, workers=2, **given):
        pool = penstock.Pool(workers, control_socket=False, **given)
        self.addCleanup(pool.shutdown, cancel_futures=True)
        return pool

    # ---- as the standard library's executors ----------------------------------------------------------------------

    def test_a_chunk_of_map_is_one_job_and_gives_its_values_in_order(self):
        with self.pool() as pool:
            self.assertEqual(list(pool.map(square, range(1003), chunksize=100)), [x * x for x in range(1003)])
            self.assertEqual(pool.report()["jobs"]["submitted"], 11)
            self.assertEqual(list(pool.map(square, range(30))), [x * x for x in range(30)])
            self.assertEqual(pool.report()["jobs"]["submitted"], 11 + 30)
            self.assertEqual(list(pool.map(lambda x, y: x + y, ["a", "b", "c"], ["d", "e"], chunksize=2)), ["ad", "be"])
            self.assertEqual(list(pool.map(square, [], chunksize=2)), [])
            arrays = list(pool.map(numpy.arange, range(5), chunksize=3))
            self.assertEqual([array.tolist() for array in arrays], [list(range(n)) for n in range(5)])
            taken = []
            endless = pool.map(square, (taken.append(x) or x for x in iter(int, 1)), chunksize=512)
            self.assertEqual(next(endless), 0)
            self.assertLessEqual(len(taken), 9 * 512)
            for _ in range(20 * 512):
                next(endless)
            self.assertLessEqual(len(taken), (21 + 8 + 20) * 512)
            endless.close()

    def test_an_exception_in_a_chunk_is_raised_unchanged_at_its_turn(self):
        with self.pool() as pool:
            values = pool.map(odd_one, [3, 4, 5, 6], chunksize=4)
            self.assertEqual([next(values), next(values)], [3, 4])
            with self.assertRaisesRegex(KeyError, "five") as raised:
                next(values)
            self.assertIn("in odd_one", str(raised.exception.__cause__))
            self.assertEqual(pool.report()["jobs"]["submitted"], 1)

    def test_only_the_input_of_a_chunk_that_kills_workers_or_is_too_large_fails(self):
        with self.pool(jobs={"memory": "2MiB"}, loader={"slot_bytes": "1MiB"}) as pool:
            for bad, error in ((7, penstock.job_poisoned_error), (9, penstock.job_too_large_error)):
                values = pool.map(odd_one, [1, 2, 3, 4, 1, 2, bad, 4], chunksize=4)
                self.assertEqual([next(values) for _ in range(6)], [1, 2, 3, 4, 1, 2])
                with self.assertRaisesRegex(error, "^input 6: ") as raised:
                    next(values)
                self.assertEqual(raised.exception.input, 6)
            values = pool.map(len, [b"a", b"bb", bytes(3 << 20), b"cccc"], chunksize=4)
            self.assertEqual([next(values), next(values)], [1, 2])
            self.assertRaises(penstock.job_too_large_error, next, values)
            pieces = [b"a", bytes(1 << 20), bytes(1 << 20), bytes(1 << 20)]
            self.assertEqual(list(pool.map(len, pieces, chunksize=4)), [1, 1 << 20, 1 << 20, 1 << 20])

    def test_a_chunk_that_kills_workers_is_shown_as_the_function_and_its_input_and_only_the_input_counts_as_poisoned(self):
        def odd(value):
            if value == 6:
                os.abort()
            return value
        with penstock.Pool(2, name="chunks") as pool:
            self.assertRaisesRegex(penstock.job_poisoned_error, r"^input 6: ", list, pool.map(odd, range(8), chunksize=4))
            deaths = json.loads(self.penstock("deaths", "--session", "chunks", "--json")[1])
            function = odd.__qualname__
            self.assertEqual([d["work"] for d in deaths["deaths"]], [f"{function} on inputs 4 to 7"] + [f"{function} on input 6"] * 5)
            self.assertEqual(deaths["cost"]["quarantined"], 1)
            (poisoned,) = json.loads(self.penstock("quarantine", "list", "--session", "chunks", "--json")[1])["quarantine"]
            self.assertEqual(poisoned["work"], f"{function} on input 6")
            events = self.penstock("events", "--session", "chunks", "--all")[1]
            self.assertIn(f"{function} on input 6 killed 3 workers; each of its 4 inputs is now run as a job of its own", events)
            self.assertNotIn("call_with_each", events)

    def test_inputs_are_separate_jobs_if_they_have_timeouts_or_are_fresh_or_not_idempotent(self):
        with self.pool() as pool:
            for options in ({"timeout": 20}, {"fresh": True}, {"idempotent": False}):
                before = pool.report()["jobs"]["submitted"]
                self.assertEqual(list(pool.options(**options).map(square, range(4), chunksize=4)), [0, 1, 4, 9])
                self.assertEqual(pool.report()["jobs"]["submitted"] - before, 4)
        with self.pool(jobs={"timeout": "20s"}) as pool:
            self.assertEqual(list(pool.map(square, range(4), chunksize=4)), [0, 1, 4, 9])
            self.assertEqual(pool.report()["jobs"]["submitted"], 4)

    def test_an_argument_beyond_the_memory_limit_is_the_only_one_of_a_map_that_fails(self):
        with self.pool(jobs={"memory": "1MiB"}) as pool:
            values = pool.map(len, [b"a", b"bb", bytes(2 << 20), b"cccc"])
            self.assertEqual([next(values), next(values)], [1, 2])
            with self.assertRaisesRegex(penstock.job_too_large_error, "2.00 MiB.*memory is only 1.00 MiB") as raised:
                next(values)
            self.assertEqual(raised.exception.status, "too_large")
            found = []
            values = pool.map_unordered(len, [bytes(2 << 20), b"a"])
            with self.assertRaises(penstock.job_too_large_error):
                while True:
                    found.append(next(values))
            self.assertLessEqual(found, [1])
            with self.assertRaises(penstock.out_of_memory_error):
                pool.submit(len, bytes(2 << 20))

    def test_submit_map_wait_and_as_completed_work_as_with_any_executor(self):
        with self.pool() as pool:
            self.assertIsInstance(pool, concurrent.futures.Executor)
            self.assertEqual(pool.submit(square, 12).result(20), 144)
            self.assertEqual(pool.submit(pow, 2, exp=5).result(20), 32)
            self.assertEqual(list(pool.map(square, range(200))), [x * x for x in range(200)])
            self.assertEqual(list(pool.map(pow, [2, 3], [3, 2])), [8, 9])
            futures = [pool.submit(square, x) for x in range(20)]
            self.assertEqual({f.result() for f in concurrent.futures.as_completed(futures)}, {x * x for x in range(20)})
            done, left = concurrent.futures.wait([pool.submit(square, x) for x in range(5)])
            self.assertEqual((len(done), len(left)), (5, 0))
            self.assertEqual(sorted(pool.map_unordered(square, range(50))), sorted(x * x for x in range(50)))

    def test_functions_of_the_program_can_cache_their_values(self):
        with self.pool() as pool:
            self.assertEqual(pool.submit(fibonacci, 30).result(20), 832040)
            self.assertEqual(pool.submit(cached_in_all_ways, 9).result(20), (34, 7, 2, 18))
            self.assertEqual(pool.submit(Caching().twice, 4).result(20), 8)
            self.assertEqual(list(pool.map(fibonacci, range(8), chunksize=3)), [0, 1, 1, 2, 3, 5, 8, 13])
            self.assertIs(pool.submit(next, iter([fnmatch._compile_pattern])).result(20), fnmatch._compile_pattern)  # the function is sent by name

    def test_an_exception_does_not_end_an_unordered_map(self):
        with self.pool() as pool:
            values = pool.map_unordered(inverse, [1, 0, 2, 0, 4])
            found = []
            while len(found) < 5:
                try:
                    found.append(next(values))
                except ZeroDivisionError:
                    found.append(0)
            self.assertEqual(sorted(found), [0, 0, 0.25, 0.5, 1])
            self.assertIsNone(next(values, None))

    def test_an_input_that_cannot_be_pickled_costs_an_unordered_map_only_its_own_result(self):
        with self.pool(jobs={"queue": 2}) as pool:
            values = pool.map_unordered(type, [1, "a", 2.5, threading.Lock(), b"b", None])
            found = []
            while len(found) < 6:
                try:
                    found.append(next(values).__name__)
                except TypeError:
                    found.append("raised")
            self.assertEqual(sorted(found), ["NoneType", "bytes", "float", "int", "raised", "str"])
            self.assertIsNone(next(values, None))

    def test_asyncio_can_await_jobs(self):
        async def main(pool):
            loop = asyncio.get_running_loop()
            return await asyncio.gather(loop.run_in_executor(pool, square, 5), asyncio.wrap_future(pool.submit(square, 6)))
        with self.pool() as pool:
            self.assertEqual(asyncio.run(main(pool)), [25, 36])

    def test_jobs_can_use_the_proxies_of_a_manager(self):
        # A separate program: multiprocessing leaves a process behind.
        self.assertEqual(self.ran("""
            import multiprocessing, penstock
            with multiprocessing.get_context("spawn").Manager() as manager, penstock.Pool(1, control_socket=False) as pool:
                shared = manager.dict()
                pool.submit(shared.__setitem__, "key", 7).result(20)
                print(shared["key"])
            """).strip(), "7")

    def test_functions_without_a_module_reach_workers_and_a_program_needs_no_main_guard(self):
        out = self.ran("""
            import penstock
            factor = 3
            class Thing:
                def __init__(self, x): self.x = x
            def triple(thing): return Thing(thing.x * factor)
            pool = penstock.Pool(2, control_socket=False)
            print([t.x for t in pool.map(triple, [Thing(1), Thing(2)])], pool.submit(lambda: 7).result())
            """)
        self.assertEqual(out.strip(), "[3, 6] 7")

    def test_arrays_arrive_whole_and_can_be_written_and_kept(self):
        def double(array):
            array *= 2  # changes only the job's own copy
            kept.append(array)
            return array
        kept = []
        with self.pool(1) as pool:
            arrays = [numpy.arange(n, dtype="float32") for n in (0, 3, 100_000, 1_000_000)]
            results = list(pool.map(double, arrays))
            for array, result in zip(arrays, results):
                numpy.testing.assert_array_equal(result, array * 2)
                result += 1
            numpy.testing.assert_array_equal(arrays[1], [0, 1, 2])

    def test_an_exception_is_raised_in_the_caller_with_the_traceback_of_the_worker(self):
        with self.pool(1) as pool:
            with self.assertRaises(ZeroDivisionError) as caught:
                pool.submit(lambda: 1 // 0).result(20)
            self.assertIsInstance(caught.exception.__cause__, penstock.remote_traceback)
            self.assertIn("<lambda>", str(caught.exception.__cause__))
            with self.assertRaisesRegex(penstock.job_exception_error, "OddError: odd: 1 2") as caught:
                pool.submit(fail, OddError, 1, 2).result(20)
            self.assertIn("in fail", caught.exception.traceback)
            with self.assertRaises(SystemExit):
                pool.submit(sys.exit, 3).result(20)
            with self.assertRaises(KeyboardInterrupt):
                pool.submit(fail, KeyboardInterrupt).result(20)
            with self.assertRaises(RecursionError):  # the traceback is longer than a result's space for errors
                pool.submit(recurse).result(20)
            with self.assertRaises(MemoryError):
                pool.submit(eat_all_memory).result(20)
            with self.assertRaisesRegex(Exception, "pickle"):
                pool.submit(threading.Lock).result(20)  # a result that cannot be pickled
            self.assertEqual(pool.report()["workers"]["restarts"], 0)

    def test_an_argument_that_cannot_be_pickled_is_refused_at_once(self):
        with self.pool(1) as pool:
            with self.assertRaisesRegex(TypeError, "pickle"):
                pool.submit(square, threading.Lock())
            self.assertEqual(pool.submit(square, 2).result(20), 4)

    def test_a_waiting_job_is_cancelled_and_a_running_one_is_not(self):
        release = os.path.join(self.folder, "release")

        def until_released():
            while not os.path.exists(release):
                time.sleep(0.01)
            return "done"
        with self.pool(1) as pool:
            running = pool.submit(until_released)
            waiting = [pool.submit(until_released) for _ in range(20)]
            self.wait_until(running.running, "a job to run")
            self.assertFalse(waiting[-1].running())
            self.assertTrue(waiting[-1].cancel())
            self.assertTrue(waiting[-1].cancelled())
            with self.assertRaises(concurrent.futures.CancelledError):
                waiting[-1].result(1)
            self.assertIn(waiting[-1], concurrent.futures.wait(waiting[-1:], 5).done)
            self.assertFalse(running.cancel())
            open(release, "w").close()
            self.assertEqual(running.result(20), "done")
            self.assertFalse(running.running())
            self.assertEqual(waiting[0].result(20), "done")

    def test_a_job_that_has_ended_cannot_be_cancelled_while_its_result_is_unpickled(self):
        begun, go, unpickled = threading.Event(), threading.Event(), _parts.unpickled

        def slowly(parts):
            begun.set()
            go.wait(60)
            return unpickled(parts)
        with self.pool(1) as pool, unittest.mock.patch.object(_parts, "unpickled", slowly):
            future = pool.submit(abs, -3)
            self.assertTrue(begun.wait(60))
            self.assertFalse(future.cancel())
            go.set()
            self.assertIn(future, concurrent.futures.wait([future], 60).done)
            self.assertEqual(future.result(60), 3)

    def test_a_map_of_a_pool_that_is_shut_down_gives_every_outcome_in_progress_and_then_the_reason(self):
        for size, mapped in (
            (1, lambda pool: pool.map(square, itertools.count())),
            (10, lambda pool: pool.map(square, itertools.count(), chunksize=10)),
            (1, lambda pool: pool.map_unordered(square, itertools.count())),
        ):
            with self.pool(2, jobs={"queue": 40}) as pool:
                values = mapped(pool)
                taken = [next(values)]
            with self.assertRaisesRegex(RuntimeError, "cannot schedule new futures after shutdown"):
                for value in values:
                    taken.append(value)
            self.assertEqual(len(taken), size * pool.report()["jobs"]["submitted"])
            self.assertEqual(sorted(taken), [x * x for x in range(len(taken))])

    def test_jobs_see_globals_of_main_set_by_the_initializer(self):
        out = self.ran("""
            import penstock

            offset, factor = None, 2

            def begin(value):
                global offset
                offset = value
                remember()

            def remember():
                global remembered
                remembered = "yes"

            def use(value):
                return offset + factor * value

            def both(value):
                return use(value), remembered

            with penstock.Pool(2, initializer=begin, initargs=(5,)) as pool:
                print([pool.submit(use, value).result() for value in range(3)])
                factor = 3  # as the caller has it when the job is submitted
                print(pool.submit(use, 2).result(), pool.submit(both, 1).result(), pool.submit(lambda: offset).result())
            """)
        self.assertEqual(out, "[5, 7, 9]\n11 (8, 'yes') 5\n")

    def test_arguments_of_other_executors_are_refused_and_the_error_says_what_to_use_instead(self):
        with self.assertRaisesRegex(TypeError, "max_tasks_per_child: fresh=True"):
            penstock.Pool(1, max_tasks_per_child=1)
        with self.pool(1, mp_context=None) as pool:
            with self.assertRaisesRegex(TypeError, "a penstock.Pool cannot be pickled"):
                pool.submit(len, pool)

    def test_the_initializer_runs_once_in_each_worker_and_in_each_replacement(self):
        def begin(value):
            import builtins
            builtins.begun_with = getattr(builtins, "begun_with", 0) + value

        def look():
            return begun_with  # noqa: F821
        with self.pool(1, initializer=begin, initargs=(5,)) as pool:
            self.assertEqual(pool.submit(look).result(20), 5)
            with self.assertRaises(penstock.job_worker_lost_error):
                pool.options(idempotent=False).submit(leave).result(20)
            self.assertEqual(pool.submit(look).result(20), 5)

    def test_a_worker_finds_its_number_in_its_environment(self):
        with self.pool(2) as pool:
            told = dict(pool.submit(lambda: (int(os.environ["PENSTOCK_WORKER"]), os.getpid())).result(20) for _ in range(20))
            known = {worker["id"]: worker["pid"] for worker in pool.status()["workers"]}
            self.assertEqual(told, {number: known[number] for number in told})

    def test_after_shutdown_new_jobs_are_refused_and_submitted_ones_finish(self):
        pool = self.pool()
        futures = [pool.submit(square, x) for x in range(50)]
        pool.shutdown()
        self.assertEqual([f.result(0) for f in futures], [x * x for x in range(50)])
        with self.assertRaisesRegex(RuntimeError, "after shutdown"):
            pool.submit(square, 1)
        other = self.pool()
        futures = [other.submit(square, x) for x in range(50)]
        other.shutdown(wait=False)
        self.assertEqual([f.result(20) for f in futures], [x * x for x in range(50)])

    def test_a_number_of_workers_under_another_name_is_refused_with_the_argument_to_use(self):
        for name in ("workers", "num_workers", "processes", "n_jobs"):
            with self.assertRaisesRegex(TypeError, r"^Pool\(\) has no %s: the number of worker processes is the first argument, Pool\(2\)" % name):
                penstock.Pool(**{name: 2})

    def test_a_second_number_of_workers_is_refused(self):
        for options in ({"loader": {"workers": 5}}, {"loader.workers": "auto"}):
            with self.assertRaisesRegex(penstock.config_error, r"^max_workers is 2, but loader.workers is (5|\"auto\"): leave out loader.workers"):
                penstock.Pool(2, **options)

    # ---- deaths ---------------------------------------------------------------------------------------------------

    def guilty(self, function, signal_or_code):
        with self.pool() as pool:
            before = [pool.submit(square, x) for x in range(100)]
            bad = pool.submit(function)
            after = [pool.submit(square, x) for x in range(100)]
            with self.assertRaises(penstock.job_poisoned_error) as caught:
                bad.result(60)
            self.assertEqual([f.result(60) for f in before + after], [x * x for x in range(100)] * 2)
            self.assertEqual((caught.exception.status, caught.exception.attempts), ("poisoned", 3))
            self.assertEqual(str(caught.exception), "job 101: %s killed 3 workers and is not tried again" % function.__name__)
            self.assertEqual(caught.exception.job, 101)
            self.assertEqual(len(caught.exception.causes), 3)
            for cause in caught.exception.causes:
                self.assertIn(signal_or_code, cause)
            self.assertEqual(pool.submit(square, 3).result(20), 9)

    def test_a_job_that_crashes_is_named_and_other_jobs_are_not_affected(self):
        self.guilty(crash, "SIGSEGV")

    def test_a_job_that_ends_its_process_is_named_and_other_jobs_are_not_affected(self):
        self.guilty(leave, "7")

    def test_a_job_that_hangs_is_ended_by_its_timeout_and_other_jobs_are_not_affected(self):
        with self.pool() as pool:
            bad = pool.options(timeout=0.5).submit(hang)
            good = [pool.submit(square, x) for x in range(100)]
            with self.assertRaises(penstock.job_timed_out_error) as caught:
                bad.result(60)
            self.assertIsInstance(caught.exception, TimeoutError)
            self.assertEqual([f.result(20) for f in good], [x * x for x in range(100)])

    def test_a_running_job_can_be_killed(self):
        with self.pool() as pool:
            bad = pool.submit(hang)
            self.wait_until(lambda: pool.status()["jobs"]["running"] > 0, "the job to run")
            self.assertTrue(bad.kill())
            with self.assertRaises(penstock.job_cancelled_error):
                bad.result(20)
            self.assertEqual(pool.submit(square, 5).result(20), 25)
            self.assertFalse(bad.kill())

    def test_a_job_that_must_not_be_repeated_is_started_once(self):
        marks = os.path.join(self.folder, "marks")

        def leave_a_mark():
            with open(marks, "a") as file:
                file.write("x")
            os._exit(1)
        with self.pool(idempotent=False) as pool:
            with self.assertRaises(penstock.job_worker_lost_error):
                pool.submit(leave_a_mark).result(20)
        with open(marks) as file:
            self.assertEqual(file.read(), "x")

    def test_a_death_in_a_bundle_of_jobs_blames_the_running_one_and_repeats_no_other(self):
        bad, log = 57, os.path.join(self.folder, "began")

        def begin(x):
            with open(log, "ab", buffering=0) as file:
                file.write(b"%d\n" % x)
            if x == bad:
                os._exit(9)
            return x
        with self.pool(1) as pool:
            futures = [pool.submit(begin, x) for x in range(200)]
            with self.assertRaises(penstock.job_poisoned_error) as raised:
                futures[bad].result(60)
            self.assertEqual(len(raised.exception.causes), 3)
            self.assertEqual([f.result(60) for x, f in enumerate(futures) if x != bad], [x for x in range(200) if x != bad])
        with open(log) as file:
            times = collections.Counter(int(line) for line in file)
        self.assertEqual(times, {x: 3 if x == bad else 1 for x in range(200)})

    def test_workers_killed_during_a_thousand_jobs_lose_none_of_them(self):
        def slow_square(x):
            time.sleep(0.001)
            return x * x
        with self.pool(2) as pool:
            futures = [pool.submit(slow_square, x) for x in range(1000)]
            killed = 0
            for wanted in (200, 500, 800):
                futures[wanted].result(60)
                worker = next(w for w in pool.status()["workers"] if w["pid"])
                signal_process(worker["pid"], signal.SIGKILL)
                killed += 1
            self.assertEqual([f.result(60) for f in futures], [x * x for x in range(1000)])
            self.assertGreaterEqual(pool.report()["workers"]["restarts"], killed - 1)

    def test_fresh_jobs_run_in_separate_processes(self):
        with self.pool(2) as pool:
            fresh = pool.options(fresh=True)
            self.assertEqual(len({fresh.submit(os.getpid).result(30) for _ in range(3)}), 3)

    def test_changes_that_a_job_makes_to_the_environment_are_undone_for_the_next_one(self):
        def change():
            os.environ["OF_THE_JOB"] = "1"
            return os.environ.pop("PATH")
        with self.pool(1) as pool:
            path = pool.submit(change).result(30)
            seen, kept = pool.submit(os.getenv, "OF_THE_JOB"), pool.submit(os.getenv, "PATH")
            self.assertEqual((seen.result(30), kept.result(30)), (None, path))

    # ---- mistakes, and the end ------------------------------------------------------------------------------------

    def test_a_worker_that_cannot_start_says_why(self):
        with self.pool(1, loader={"command": [sys.executable, "-c", "raise SystemExit('no penstock here')"]}) as pool:
            with self.assertRaisesRegex(penstock.error, "no penstock here"):
                pool.submit(square, 1).result(60)

    def test_an_initializer_that_raises_ends_the_pool_with_its_message(self):
        def begin():
            raise ValueError("of the initializer")
        with self.pool(1, initializer=begin, loader={"restart": {"intensity": {"max": 1}}}) as pool:
            with self.assertRaisesRegex(penstock.error, "of the initializer"):
                pool.submit(square, 1).result(60)

    def test_an_initializer_that_raises_is_named_with_one_traceback_and_the_number_of_attempts(self):
        process = self.program("""
            import penstock
            def begin(path):
                raise ValueError("of the initializer")
            pool = penstock.Pool(1, initializer=begin, initargs=("model.bin",), loader={"restart": {"intensity": {"max": 2}}})
            try:
                pool.submit(abs, 1).result()
            except penstock.error as first:
                print(first)
                print(first.traceback == first.__cause__.tb)
            pool.submit(abs, 2)
            """)
        out, err = process.communicate(timeout=50)
        self.assertRegex(out, r"^the initializer begin \(<string>:3\) raised ValueError: of the initializer\. The initializer was tried 3 times; [^\n]*\nTrue\n$")
        log, last_error = err.split("penstock.remote_traceback", 1)
        self.assertNotIn("Traceback", log)
        self.assertEqual(log.count("the initializer begin (<string>:3) raised ValueError: of the initializer"), 3)
        self.assertEqual(last_error.count("in begin\n"), 1)
        self.assertIn("penstock.workers_exhausted_error: the initializer begin", last_error)

    def test_an_initializer_that_cannot_be_recreated_in_a_worker_is_named(self):
        with open(os.path.join(self.folder, "only_here.py"), "w") as file:
            file.write("def begin(): pass")
        self.assertIn("the initializer cannot be recreated in a worker: ModuleNotFoundError: No module named 'only_here'", self.ran("""
            import os, sys, penstock
            sys.path.insert(0, sys.argv[1])
            import only_here
            os.remove(only_here.__file__)
            pool = penstock.Pool(1, initializer=only_here.begin, loader={"restart": {"intensity": {"max": 1}}})
            print(pool.submit(abs, 1).exception(40))
            """, self.folder))

    def test_no_job_is_lost_when_an_initializer_raises_only_at_first(self):
        tried = os.path.join(self.folder, "tried")

        def begin():
            if not os.path.exists(tried):
                open(tried, "w").close()
                raise OSError("not yet")
        with self.pool(1, initializer=begin) as pool:
            self.assertEqual(pool.submit(square, 3).result(30), 9)
            self.assertEqual(pool.report()["workers"]["restarts"], 1)

    def test_the_lines_that_raised_can_be_found_after_the_end(self):
        self.ran("""
            import penstock
            def inner(value):
                raise KeyError("no %d" % value)
            def outer(value):
                return inner(value) if value % 2 else value
            with penstock.Pool(2, name="raising") as pool:
                futures = [pool.submit(outer, value) for value in range(300)]
                print(sum(future.exception() is not None for future in futures))
            """)
        events = [json.loads(line) for line in self.penstock("events", "--last", "--session", "raising", "--json")[1].splitlines()]
        raised = [e for e in events if e["kind"] == "job_raised"]
        self.assertEqual(len(raised), 100)
        self.assertEqual(raised[0]["exception"]["type"], "KeyError")
        self.assertEqual([frame.split(", in ")[1] for frame in raised[0]["exception"]["frames"]], ["outer", "inner"])
        self.assertRegex(raised[0]["text"], r"^job \d+ raised KeyError: 'no \d+' \(.*:4, in inner\)$")
        self.assertRegex(raised[-1]["text"], "further exceptions are not listed \\(limit: 100\\)$")

    def test_an_exception_of_an_input_in_a_chunk_is_an_event(self):
        self.ran("""
            import penstock
            def odd(value):
                if value % 10 == 7:
                    raise KeyError("no %d" % value)
                return value
            with penstock.Pool(2, name="chunks") as pool:
                values = pool.map(odd, range(20), chunksize=5)
                assert [next(values) for _ in range(7)] == list(range(7))
                try:
                    next(values)
                except KeyError:
                    pass
            """)
        events = [json.loads(line) for line in self.penstock("events", "--last", "--session", "chunks", "--json")[1].splitlines()]
        (first,) = [e for e in events if e["kind"] == "job_raised" and "no 7" in e["text"]]
        self.assertRegex(first["text"], r"^input 7 of a map, in job 2, raised KeyError: 'no 7' \(.*:5, in odd\)$")
        self.assertEqual([frame.split(", in ")[1] for frame in first["exception"]["frames"]], ["odd"])

    def test_an_error_of_the_library_that_a_job_raises_does_not_get_the_number_of_the_job(self):
        def raising():
            raise penstock.job_worker_lost_error("in another pool")
        with self.pool(1) as pool:
            with self.assertRaisesRegex(penstock.job_worker_lost_error, "^in another pool$") as caught:
                pool.submit(raising).result(30)
            self.assertIsNone(caught.exception.job)

    def test_pools_without_a_name_get_separate_names(self):
        process = self.program("""
            import penstock
            def name_of(pool):
                return pool.status()["session"] if pool.submit(abs, -1).result() else None
            first, second = penstock.Pool(1), penstock.Pool(1)
            print(name_of(first), name_of(second))
            first.shutdown()
            third, fourth = penstock.Pool(1), penstock.Pool(1, name="pool-3")
            print(name_of(third), name_of(fourth), name_of(penstock.Pool(1)))
            del second
            third.abort()
            """)
        out, err = process.communicate(timeout=100)
        self.assertEqual((out, err), ("pool pool-2\npool pool-3 pool-4\n", ""))

    def test_mistakes_are_errors_that_say_what_to_do(self):
        with self.assertRaises(ValueError):
            penstock.Pool(0)
        with self.assertRaises(TypeError):
            penstock.Pool(1, initializer=3)
        with self.assertRaisesRegex(TypeError, "max_workers, a number of processes; a config file is passed as config='jobs.toml'"):
            penstock.Pool("jobs.toml")
        with self.pool(1) as pool, self.assertRaisesRegex(TypeError, r"submit\(None\): the first argument must be a function"):
            pool.submit(None)
        with self.assertRaisesRegex(TypeError, "max_workers is 2.5"):
            penstock.Pool(2.5)
        with self.assertRaisesRegex(TypeError, r"initargs .* such as \('x',\)"):
            penstock.Pool(1, initializer=print, initargs="x")
        with self.assertRaisesRegex(TypeError, "timeout is '5'.* a number of seconds"):
            penstock.Pool(1, timeout="5")
        with self.assertRaisesRegex(penstock.usage_error, "timeout is -1.* 0 or more"):
            penstock.Pool(1, timeout=-1)
        with self.assertRaisesRegex(penstock.config_error, "queue"):
            penstock.Pool(1, jobs={"queue": 0})
        with self.pool(1) as pool:
            with self.assertRaisesRegex(ValueError, "chunksize"):
                pool.map(square, [1], chunksize=0)
            with self.assertRaisesRegex(penstock.usage_error, "gpu=True"):
                pool.submit(square, 1, gpu=print)
            with self.assertRaisesRegex(penstock.usage_error, "gpu=True"):
                pool.options(gpu=print)

    def test_pools_that_are_made_and_dropped_leave_no_processes_or_descriptors(self):
        def turn(times):
            for _ in range(times):
                pool = penstock.Pool(1, control_socket=False)
                self.assertEqual(pool.submit(square, 3).result(20), 9)
                del pool
            gc.collect()
            self.no_children_left()
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        before = turn(2)
        self.wait_until(lambda: turn(4) == before, "the numbers of descriptors and threads return to what they were", seconds=20)

    def test_a_killed_interpreter_leaves_no_worker(self):
        process = self.program("""
            import os, sys, time, penstock
            pool = penstock.Pool(2, control_socket=False)
            futures = [pool.submit(time.sleep, 60) for _ in range(4)]
            while len(workers := [w["pid"] for w in pool.status()["workers"] if w["state"] == "ready"]) < 2: pass
            print("workers", *workers, flush=True)
            time.sleep(60)
            """)
        workers = self.said(process, "workers").split()
        process.kill()
        process.wait()
        self.assertEqual(len(workers), 2)
        self.wait_until(lambda: not any(alive(int(pid)) for pid in workers), "the end of all workers", seconds=3)

    def test_submitted_jobs_finish_before_the_interpreter_ends(self):
        mark = os.path.join(self.folder, "mark")
        self.ran("""
            import sys, time, penstock
            def late():
                time.sleep(0.3)
                open(sys_argv_1, "w").close()
            sys_argv_1 = sys.argv[1]
            pool = penstock.Pool(1, control_socket=False)
            pool.submit(late)
            """, mark)
        self.assertTrue(os.path.exists(mark))

    def test_a_thread_that_the_interpreter_waits_for_closes_an_unreferenced_pool(self):
        # If the last reference went away on the callback thread, the end of the interpreter would become a SIGABRT.
        from penstock import _core
        closed_by = []

        class Recording:
            def __init__(self, *arguments):
                self.inner = core(*arguments)

            def __getattr__(self, name):
                return getattr(self.inner, name)

            def close(self):
                closed_by.append(threading.current_thread())
                self.inner.close()
        core = _core.Pool
        with unittest.mock.patch.object(_core, "Pool", Recording):
            future = penstock.Pool(1, control_socket=False).submit(square, 3)
        self.assertEqual(future.result(20), 9)
        self.wait_until(lambda: closed_by, "the end of the pool")
        self.assertFalse(closed_by[0].daemon)

    def test_a_forked_child_that_exits_reports_nothing_about_the_pool(self):
        process = self.program("""
            import os, sys, warnings, penstock
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork with threads
            pool = penstock.Pool(1, control_socket=False)
            pool.submit(abs, -1).result(20)
            child = os.fork()
            if child == 0:
                sys.exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), pool.submit(abs, -4).result(20))
            """)
        self.assertEqual(process.communicate(timeout=50), ("3 4\n", ""))


if __name__ == "__main__":
    main()
