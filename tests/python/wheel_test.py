"""`pip wheel .` from a checkout, installed into a fresh environment: the package, the command, and everything that they need.

Slow unless the compiler's cache knows the build (label soak). Set by ctest: PENSTOCK_WHEEL_OPTIONS, how the build tree is
compiled, so that the cache helps; PENSTOCK_BASE_PYTHON, the interpreter. By hand: PENSTOCK_WHEELS, a folder that the wheel is
kept in; PENSTOCK_WHEEL, a wheel to test instead of building one, such as an abi3 wheel with a later interpreter.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import zipfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASE = os.environ.get("PENSTOCK_BASE_PYTHON", "python3")
OPTIONS = [option for option in os.environ.get("PENSTOCK_WHEEL_OPTIONS", "").split("|") if option]

# Files that every machine has: glibc, the libraries of its compiler, and the interpreter's.
OF_THE_MACHINE = re.compile(r"^(linux-vdso|ld-linux-x86-64|lib(c|m|pthread|dl|rt|resolv|gcc_s|stdc\+\+|python3[.0-9]*|z|expat|util))\.so|^/lib64/ld-linux")

CONFIG = os.path.join(TOP, "tests", "install", "bare.toml")


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="penstock-wheel-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", cls.folder), "XDG_RUNTIME_DIR": cls.folder,
                           **{k: v for k, v in os.environ.items() if k.startswith(("PIP_", "CCACHE_", "SSL_", "CXX", "CMAKE_"))}}
        cls.venv = os.path.join(cls.folder, "builds")
        given = os.environ.get("PENSTOCK_WHEEL")
        cls.wheel = os.path.abspath(given) if given else cls.built()
        cls.venv = os.path.join(cls.folder, "venv")
        cls.run_in([BASE, "-m", "venv", cls.venv])
        cls.run_in([cls.bin("pip"), "install", "--quiet", cls.wheel])

    @classmethod
    def built(cls):
        wheels = os.path.abspath(os.environ.get("PENSTOCK_WHEELS") or os.path.join(cls.folder, "wheels"))
        fresh = os.path.join(cls.folder, "fresh")
        cls.run_in([BASE, "-m", "venv", cls.venv])
        cls.run_in([cls.bin("pip"), "wheel", "--quiet", "--no-deps", "--wheel-dir", fresh, *OPTIONS, TOP], timeout=7200)
        name, = os.listdir(fresh)
        os.makedirs(wheels, exist_ok=True)
        return shutil.copy(os.path.join(fresh, name), wheels)

    @classmethod
    def bin(cls, name):
        return os.path.join(cls.venv, "bin", name)

    @classmethod
    def run_in(cls, command, timeout=120):
        done = subprocess.run(command, env=cls.environment, cwd=cls.folder, capture_output=True, text=True, timeout=timeout)
        if done.returncode != 0:
            raise AssertionError("%s: exit %d\n%s%s" % (command, done.returncode, done.stdout[-4000:], done.stderr[-4000:]))
        return done.stdout

    def test_a_wheel_for_later_interpreters_contains_modules_for_later_interpreters(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            modules = {name for name in wheel.namelist() if re.match(r"penstock/_[a-z]+\..*so$", name)}
        with_abi3 = {"penstock/%s.abi3.so" % name for name in ("_core", "_group", "_worker")}
        if "-abi3-" in self.wheel:
            self.assertEqual(modules, with_abi3)
        else:
            self.assertEqual(len(modules), 3)
            self.assertFalse(modules & with_abi3)

    def test_the_wheel_does_not_install_numpy_or_torch(self):
        found = self.run_in([self.bin("python"), "-c", "import importlib.util as u\n"
                             "import penstock\nprint([n for n in ('numpy', 'torch') if u.find_spec(n)])"])
        self.assertEqual(found.strip(), "[]")

    def test_a_session_and_the_command_deliver_the_same_batches(self):
        report = json.loads(self.run_in([self.bin("penstock"), "run", CONFIG, "--json", "--quiet", "--digest"]))
        digest = self.run_in([self.bin("python"), "-c",
                              "import sys, penstock\n"
                              "with penstock.Session(sys.argv[1], digests=True) as s:\n"
                              "    for batch in s: pass\n"
                              "    print(s.report()['epochs'][0]['digest'])", CONFIG]).strip()
        self.assertEqual(digest, report["epochs"][0]["digest"])

    def test_a_pool_runs_functions_and_survives_one_that_crashes(self):
        out = self.run_in([self.bin("python"), "-c",
                           "import os, penstock\n"
                           "with penstock.Pool(2, control_socket=False) as pool:\n"
                           "    crash = pool.submit(os.abort)\n"
                           "    print(list(pool.map(lambda x: x * x, range(5))), type(crash.exception()).__name__)"])
        self.assertEqual(out.strip(), "[0, 1, 4, 9, 16] job_poisoned_error")

    def test_every_file_needs_only_libraries_of_the_machine_and_of_the_wheel(self):
        site = self.run_in([self.bin("python"), "-c", "import penstock, os; print(os.path.dirname(penstock.__file__))"]).strip()
        seen = 0
        for folder, _, names in os.walk(site):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    if file.read(4) != b"\x7fELF":
                        continue
                for line in subprocess.run(["ldd", path], capture_output=True, text=True).stdout.splitlines():
                    library, _, place = line.strip().partition(" => ")
                    if not OF_THE_MACHINE.match(library) and library != "statically linked":
                        self.assertTrue(os.path.realpath(place.split(" (")[0]).startswith(os.path.realpath(site)), "%s: %s" % (path, line))
                        seen += 1
        self.assertGreater(seen, 0)
        for program in ("penstock-worker", "penstock-gpu"):
            self.assertTrue(os.access(os.path.join(site, "libexec", "penstock", program), os.X_OK), program)
        self.assertTrue(os.path.exists(os.path.join(site, "py.typed")))

    def test_the_command_prints_its_version_and_refuses_unknown_verbs(self):
        self.assertIn("0.1", self.run_in([self.bin("penstock"), "version"]))
        done = subprocess.run([self.bin("penstock"), "no-such-verb"], env=self.environment, capture_output=True)
        self.assertEqual(done.returncode, 2)

    def test_the_command_draws_the_photographs_that_the_documentation_uses(self):
        self.run_in([self.bin("penstock"), "sample-photos", "photos", "5"])
        self.assertTrue(os.path.exists(os.path.join(self.folder, "photos", "class-0", "00004.jpg")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
