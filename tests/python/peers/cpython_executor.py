"""CPython's own tests of executors and futures, on penstock.Pool.

    cpython_executor.py FOLDER [-v] [NAME ...]

FOLDER has the interpreter's package `test` (tools/peer-tests makes one). The tests run unchanged: the class ProcessPoolExecutor that they
find adapts Pool to its constructor. Only those for the start method "spawn" run, because workers of a Pool start as fresh programs.
Prints the share that passes; fails below 95 %.
"""

import importlib
import os
import pickle
import sys
import time
import unittest

BAR = 0.95

# Why a test does not apply to our executor. Names without a class apply to every class.
EXCLUDED = {
    "FailingInitializer.test_initializer": "demands that the executor breaks; pool_test has ours: the pool fails with the initializer's words",
    "test_killed_child": "demands that the executor breaks; pool_test has ours: the job is done by another worker",
    "test_processes_terminate": "a multiprocessing.Semaphore can be sent only to children that multiprocessing starts",
    "test_saturation": "a multiprocessing.Semaphore can be sent only to children that multiprocessing starts",
    "test_del_shutdown": "uses private attributes (_executor_manager_thread, _call_queue)",
    "test_shutdown_no_wait": "uses private attributes (_executor_manager_thread, _call_queue)",
    "test_shutdown_deadlock_pickle": "uses a private attribute (_executor_manager_thread), and submit() pickles at once",
    "test_idle_process_reuse_one": "demands that processes are started by need; ours are started at once",
    "test_idle_process_reuse_multiple": "demands that processes are started by need; ours are started at once",
    "test_max_tasks_per_child": "workers are replaced by their memory, or after each job (fresh=True), not after N jobs",
    "test_max_tasks_per_child_defaults_to_spawn_context": "is about contexts of multiprocessing",
    "test_cancel_futures": "demands that a job has begun at once; ours are all cancelled while the workers start",
    "test_interpreter_shutdown": "demands what a job prints on the caller's stdout; ours is in the log, with its worker",
    "test_submit_after_interpreter_shutdown": "demands that the error is printed as RuntimeError; ours is one, with a name of its own",
    "test_error_at_task_pickle": "submit() itself raises what pickling raises; pool_test has it",
    "test_force_shutdown_workers": "uses private attributes",
    "test_force_shutdown_workers_invalid_op": "uses private attributes",
    "test_python_finalization_error": "replaces threading._start_joinable_thread, which ours does not use",
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": "replaces a private class (_ThreadWakeup)",
    "test_map_exception_with_submit": "is about a private method",
}

# In these tests the standard executor breaks, but ours fails only the one job.
# That job's future raises this error instead of BrokenProcessPool.
INSTEAD = {
    "test_crash_at_task_unpickle": "job_poisoned_error",
    "test_crash_during_func_exec_on_worker": "job_poisoned_error",
    "test_crash_during_result_pickle_on_worker": "job_poisoned_error",
    "test_crash_big_data": "job_poisoned_error",
    "test_shutdown_deadlock": "job_poisoned_error",
    "test_exit_at_task_unpickle": SystemExit,
    "test_exit_during_result_unpickle_in_result_handler": SystemExit,
    "test_error_at_task_unpickle": pickle.UnpicklingError,
    "test_error_during_result_unpickle_in_result_handler": pickle.UnpicklingError,
}


def replace():
    """Makes concurrent.futures.ProcessPoolExecutor an adapter of Pool."""
    import concurrent.futures
    import concurrent.futures.process

    import penstock

    class Process:
        """The part of multiprocessing.Process that the tests use."""

        def __init__(self, pid):
            self.pid = pid

        def join(self):
            deadline = time.monotonic() + 60
            while os.path.exists("/proc/%d" % self.pid):
                if time.monotonic() > deadline:
                    raise AssertionError("worker %d has not ended" % self.pid)
                time.sleep(0.001)

    class ProcessPoolExecutor(penstock.Pool):
        def __init__(self, max_workers=None, mp_context=None, initializer=None, initargs=(), *, max_tasks_per_child=None):
            if max_tasks_per_child not in (None, 1):
                raise unittest.SkipTest("no max_tasks_per_child")
            super().__init__(max_workers, initializer=initializer, initargs=initargs, fresh=max_tasks_per_child == 1, control_socket=False)

        @property
        def _processes(self):
            while True:
                pids = [worker["pid"] for worker in self.status()["workers"]]
                if all(pids):
                    return {pid: Process(pid) for pid in pids}
                time.sleep(0.001)

    concurrent.futures.ProcessPoolExecutor = ProcessPoolExecutor
    concurrent.futures.process.ProcessPoolExecutor = ProcessPoolExecutor
    concurrent.futures.process._RemoteTraceback = penstock.remote_traceback


LATER = """import sys; sys.path[:0] = %r
import concurrent.futures
def replaced(name):
    import cpython_executor
    cpython_executor.replace()
    return getattr(concurrent.futures, name)
concurrent.futures.__getattr__ = replaced
"""


def replace_in_programs(folder):
    """Replaces the class also in programs that the tests start, which inherit no path."""
    from test.support import script_helper

    # Replaces the class only when the program itself uses concurrent.futures: the
    # interpreter runs exit functions in the reverse order of their registration.
    begin = LATER % (
        [folder, os.path.dirname(os.path.abspath(__file__)), *os.environ.get("PYTHONPATH", "").split(os.pathsep)],)
    start = script_helper.assert_python_ok

    def assert_python_ok(*arguments, **environment):
        at = arguments.index("-c") + 1
        return start(*arguments[:at], begin + arguments[at], *arguments[at + 1:], **environment)

    script_helper.assert_python_ok = assert_python_ok


def modules():
    """The tests' modules: one module up to Python 3.11, a package since then. The shared one comes first."""
    import test.test_concurrent_futures as tests
    if not hasattr(tests, "__path__"):
        return [tests]
    names = ("util", "test_process_pool", "test_shutdown", "test_wait", "test_as_completed", "test_init", "test_deadlock", "test_future")
    return [importlib.import_module("test.test_concurrent_futures." + name) for name in names]


def replaced_broken(test, error):
    """The test's method, run with another class in place of BrokenProcessPool."""
    import penstock
    module = sys.modules[type(test).__module__]
    method = getattr(test, test._testMethodName)
    stand_in = getattr(penstock, error) if isinstance(error, str) else error
    for base in type(test).__mro__:  # the module that contains the test itself
        if test._testMethodName in vars(base):
            module = sys.modules[base.__module__]

    def run():
        standard = module.BrokenProcessPool
        module.BrokenProcessPool = stand_in
        try:
            method()
        finally:
            module.BrokenProcessPool = standard
    setattr(test, test._testMethodName, run)


def collect(wanted):
    import concurrent.futures._base

    import penstock
    found, excluded = unittest.TestSuite(), {}
    shared, *_ = all_of_them = modules()
    for module in all_of_them:
        if hasattr(module, "FutureTests"):
            # Tests that create futures by hand create ours.
            util = shared if hasattr(shared, "create_future") else module
            for each in {module, util}:
                if getattr(each, "Future", None) is concurrent.futures._base.Future:
                    each.Future = penstock.Future
        for name, kind in sorted(vars(module).items()):
            if not (isinstance(kind, type) and issubclass(kind, unittest.TestCase) and kind.__module__ in (module.__name__, shared.__name__)):
                continue
            if name != "FutureTests" and not issubclass(kind, shared.ProcessPoolSpawnMixin):
                continue
            # A class made by type() gets the module of the function that made it.
            setattr(sys.modules[kind.__module__], name, kind)
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(kind):
                method = test._testMethodName
                called = "%s.%s" % (name, method)
                if wanted and not any(each in called for each in wanted):
                    continue
                short = "%s.%s" % (name.removeprefix("ProcessPoolSpawn").removesuffix("Test"), method)
                why = EXCLUDED.get(method) or EXCLUDED.get(short)
                if why:
                    excluded[short] = why
                    continue
                if method in INSTEAD:
                    replaced_broken(test, INSTEAD[method])
                found.addTest(test)
    return found, excluded




def main():
    folder = os.path.abspath(sys.argv[1])
    if not os.path.exists(os.path.join(folder, "test", "test_concurrent_futures.py")) and not os.path.exists(
            os.path.join(folder, "test", "test_concurrent_futures")):
        print("skipped: %s has no tests of CPython (tools/peer-tests)" % folder)
        return 77
    verbose = "-v" in sys.argv
    sys.path.insert(0, folder)
    replace()
    replace_in_programs(folder)
    tests, excluded = collect([each for each in sys.argv[2:] if each != "-v"])
    result = unittest.TextTestRunner(verbosity=2 if verbose else 1).run(tests)
    failed = {each.id() for each, _ in result.failures + result.errors}
    skipped = len(result.skipped)
    counted = result.testsRun - skipped
    for name, why in excluded.items():
        print("left out: %s: %s" % (name, why))
    for test, why in result.skipped:
        print("skipped by itself: %s: %s" % (test.id().rpartition(".")[2], why))
    for name, error in sorted(INSTEAD.items()):
        print("with %s in place of BrokenProcessPool: %s" % (getattr(error, "__name__", error), name))
    passed = counted - len(failed)
    print("CPython %s: %d of %d tests pass (%.1f %%); %d left out" % (
        sys.version.split()[0], passed, counted, 100 * passed / max(counted, 1), len(excluded)))
    return 0 if counted and passed / counted >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
