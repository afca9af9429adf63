"""Functions and classes of the program itself in workers: whichever module the program is, and with their files and lines."""

import penstock
from package import *

PROGRAM = """
import multiprocessing, sys
import penstock

class Point:
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return type(self) is type(other) and self.x == other.x

class Odd(Exception):
    pass

def set_up(value):
    global known
    known = value

def double(point):
    if point.x > 100:
        raise Odd(point)
    return Point(known * point.x)

def child(results):
    with penstock.Pool(1, initializer=set_up, initargs=(2,), control_socket=False) as pool:
        results.put(pool.submit(double, Point(4)).result() == Point(8))
        results.put(list(pool.map(lambda x: Point(x + 1), [1, 2])) == [Point(2), Point(3)])
        try:
            pool.submit(double, Point(101)).result()
        except Odd as odd:
            results.put(odd.args[0] == Point(101))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    results = context.SimpleQueue()
    process = context.Process(target=child, args=(results,))
    process.start()
    process.join()
    print(*[results.get() for _ in range(3)] if process.exitcode == 0 else [process.exitcode])
"""

OF_TORCH = """
import os, sys
import torch
import torch.multiprocessing
from penstock.torch import DataLoader

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return index * index, os.getppid()

def collated(samples):
    return [square for square, _ in samples], {parent for _, parent in samples}

def rank_of(rank, folder):
    loader = DataLoader(Squares(), batch_size=4, num_workers=1, collate_fn=collated)
    batches = list(loader)
    ok = [squares for squares, _ in batches] == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81, 100, 121]]
    with open(os.path.join(folder, "rank%d" % rank), "w") as file:
        print(ok and all(parents == {os.getpid()} for _, parents in batches), loader.state_dict()["facts"]["dataset"], file=file)

if __name__ == "__main__":
    torch.multiprocessing.start_processes(rank_of, args=(sys.argv[2],), nprocs=2, start_method=sys.argv[1])
    for rank in range(2):
        print(open(os.path.join(sys.argv[2], "rank%d" % rank)).read().strip())
"""

# Compiled as a notebook compiles a cell: its file does not exist, but linecache has its lines.
CELL = """
import os, traceback, warnings
# an empty line follows

class Deep:
    def dive(self, x):
        return 1 / (x - self.bottom)  # the line in the class

def shallow(x, diver):
    return diver.dive(
        x)

def warn(x):
    warnings.warn("the water is cold", stacklevel=1)  # the line that warns

def crash():
    traceback.print_stack()  # the line that crashes
    os.abort()
"""

NOTEBOOK = """
import linecache, sys
import penstock

def run_cell(text, name):
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), globals())

run_cell(sys.argv[1], "/tmp/ipykernel_17/2044.py")
"""


class ProgramTest(PackageTest):
    def run_file(self, text, *arguments, timeout=270):
        file = self.write("program.py", text)
        process = subprocess.run([sys.executable, "-B", file, *arguments], capture_output=True, text=True, env=self.environment,
                                 cwd=self.folder, timeout=timeout)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        return process.stdout.split(), process.stderr

    def test_a_spawned_process_can_use_its_own_functions_and_classes_in_a_pool(self):
        self.assertEqual(self.run_file(PROGRAM, "spawn")[0], ["True"] * 3)

    def test_a_process_of_a_fork_server_can_use_its_own_functions_and_classes_in_a_pool(self):
        self.assertEqual(self.run_file(PROGRAM, "forkserver")[0], ["True"] * 3)

    def test_ranks_spawned_by_torch_load_datasets_of_the_program(self):
        self.need_torch()
        self.assertEqual(self.run_file(OF_TORCH, "spawn", self.folder)[0], ["True", "__main__.Squares"] * 2)

    def test_ranks_of_a_fork_server_load_datasets_of_the_program(self):
        self.need_torch()
        self.assertEqual(self.run_file(OF_TORCH, "forkserver", self.folder)[0], ["True", "__main__.Squares"] * 2)

    def test_a_dataset_of_the_program_can_use_torch_and_attributes_with_names_of_torch_modules(self):
        self.need_torch()
        told = self.ran("""
            import torch
            import penstock
            from penstock.torch import DataLoader

            class Photos(torch.utils.data.Dataset):
                def __init__(self):
                    self.classes, self.ops, self.backends = ["cat", "dog"], [abs], {"a": 1}
                def __len__(self):
                    return 6
                def __getitem__(self, index):
                    return torch.tensor(self.ops[0](-index)), self.classes.index("dog") + self.backends["a"]

            print([images.tolist() + labels.tolist() for images, labels in DataLoader(Photos(), batch_size=3, num_workers=1)])
            with penstock.Pool(1, control_socket=False) as pool:
                print(pool.submit(lambda photos: int(photos[4][0]), Photos()).result())
            """, timeout=270)
        self.assertEqual(told.splitlines(), ["[[0, 1, 2, 2, 2, 2], [3, 4, 5, 2, 2, 2]]", "4"])

    def test_workers_have_the_arguments_of_the_program(self):
        out = self.ran("""
            import sys
            import penstock
            with penstock.Pool(1, control_socket=False) as pool:
                print(pool.submit(lambda: sys.argv == ["-c", "--one", "2"]).result())
            """, "--one", "2")
        self.assertEqual(out.split(), ["True"])

    # ---- files and lines ------------------------------------------------------------------------------------------

    def test_the_traceback_of_a_function_of_the_program_has_its_file_and_line(self):
        file = self.write("failing.py", """
            import penstock
            def fail():
                raise ValueError("no")  # this line
            with penstock.Pool(1, control_socket=False) as pool:
                try:
                    pool.submit(fail).result()
                except ValueError as error:
                    print(error.__cause__)
            """.replace("\n            ", "\n"))
        told = subprocess.run([sys.executable, "-B", file], capture_output=True, text=True, env=self.environment, cwd="/", timeout=100).stdout
        self.assertIn(f'  File "{file}", line 4, in fail\n    raise ValueError("no")  # this line\n', told)

    def test_the_traceback_of_a_function_of_a_notebook_has_its_cell_and_lines(self):
        told = self.ran(NOTEBOOK + """
            with penstock.Pool(1, control_socket=False) as pool:
                diver = Deep()
                diver.bottom = 3
                print(pool.submit(shallow, 4, diver).result())
                try:
                    pool.submit(shallow, 3, diver).result()
                except ZeroDivisionError as error:
                    print(error.__cause__)
            """.replace("\n            ", "\n"), CELL)
        self.assertIn('  File "/tmp/ipykernel_17/2044.py", line 10, in shallow\n    return diver.dive(\n', told)
        self.assertIn('  File "/tmp/ipykernel_17/2044.py", line 7, in dive\n    return 1 / (x - self.bottom)  # the line in the class\n', told)

    def test_a_warning_in_a_worker_shows_the_line_that_caused_it(self):
        process = self.program(NOTEBOOK + """
            with penstock.Pool(1, control_socket=False) as pool:
                pool.submit(warn, 1).result()
            """.replace("\n            ", "\n"), CELL)
        _, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("/tmp/ipykernel_17/2044.py:14: UserWarning: the water is cold", err)
        self.assertIn('warnings.warn("the water is cold", stacklevel=1)  # the line that warns', err)

    def test_the_last_output_of_a_notebook_function_that_crashes_has_its_cell_and_line(self):
        told = self.ran(NOTEBOOK + """
            with penstock.Pool(1, control_socket=False, log={"level": "off"}) as pool:
                print(type(pool.submit(crash).exception()).__name__)
                print(pool.report()["workers"]["deaths"][0]["last_output"])
            """.replace("\n            ", "\n"), CELL)
        self.assertEqual(told.splitlines()[0], "job_poisoned_error")
        self.assertIn('  File "/tmp/ipykernel_17/2044.py", line 17, in crash\n    traceback.print_stack()  # the line that crashes\n', told)
        self.assertIn('  File "/tmp/ipykernel_17/2044.py", line 18 in crash\n', told)  # printed by the signal handler

    def test_a_function_that_is_returned_leaves_the_source_lines_of_the_program_unchanged(self):
        told = self.ran(NOTEBOOK + """
            before = list(linecache.getlines("/tmp/ipykernel_17/2044.py"))
            with penstock.Pool(1, control_socket=False) as pool:
                back = pool.submit(lambda: shallow).result()
            print(back.__code__.co_filename, linecache.getlines("/tmp/ipykernel_17/2044.py") == before)
            """.replace("\n            ", "\n"), CELL)
        self.assertEqual(told.split(), ["/tmp/ipykernel_17/2044.py", "True"])

    def test_the_traceback_of_a_dataset_of_the_program_has_its_file_and_line(self):
        self.need_torch()
        told = self.ran(NOTEBOOK + """
            from penstock.torch import DataLoader
            run_cell('''class Broken:
                def __len__(self):
                    return 3
                def __getitem__(self, index):
                    raise KeyError(index)  # the line of the dataset
            ''', "/tmp/ipykernel_17/3000.py")
            try:
                next(iter(DataLoader(Broken(), num_workers=1)))
            except KeyError as error:
                print(error)
            """.replace("\n            ", "\n"), CELL, timeout=270)
        self.assertIn("ipykernel_17/3000.py", told)
        self.assertIn("raise KeyError(index)  # the line of the dataset", told)


if __name__ == "__main__":
    main()
