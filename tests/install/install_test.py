"""The install tree as users get it: copied to another place, where there is nothing else but a compiler.

ctest runs `install_test.py prepare` once (install, move, build tests/install/consumer against it), then each test. Set by
ctest: PENSTOCK_BUILD, the build folder; PENSTOCK_STAGE, a folder for this test alone.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from run_tests import run_tests  # noqa: E402

BUILD = os.environ.get("PENSTOCK_BUILD", "")
STAGE = os.environ.get("PENSTOCK_STAGE", "")
HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(STAGE, "copied", "penstock")
CONSUMER = os.path.join(STAGE, "consumer")

# What every machine has: glibc, and the libraries of its compiler.
OF_THE_MACHINE = re.compile(
    r"^(linux-vdso|ld-linux-x86-64|lib(c|m|pthread|dl|rt|resolv|gcc_s|stdc\+\+))\.so|^/lib64/ld-linux")

def version_of_the_project():
    with open(os.path.join(HERE, "..", "..", "CMakeLists.txt")) as file:
        return re.search(r"project\(penstock VERSION ([0-9.]+)", file.read()).group(1)


VERSION = version_of_the_project()

WORKER_FILES = ["libexec/penstock/penstock-worker", "lib/libpenstock_worker.so"]


# The second time, these builds do nothing.
COMPILER = ["ccache", "g++"] if shutil.which("ccache", path="/usr/bin:/bin") else ["g++"]  # on the PATH that run() sets
LAUNCHERS = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
FAST = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", *LAUNCHERS]


def prepare():
    """Installs, moves the tree away from where it was installed, and builds the consumer against it."""
    shutil.rmtree(STAGE, ignore_errors=True)
    prefix = os.path.join(STAGE, "prefix")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    os.makedirs(os.path.dirname(TREE))
    os.rename(prefix, TREE)
    subprocess.run(["cmake", *FAST, "-S", os.path.join(HERE, "consumer"), "-B", CONSUMER, "-DCMAKE_PREFIX_PATH=" + TREE], check=True)
    subprocess.run(["cmake", "--build", CONSUMER], check=True)


def run(*command, **environment):
    """Runs a program in a bare environment; returns its output."""
    with tempfile.TemporaryDirectory(prefix="penstock-install-") as folder:
        bare = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": folder, "LC_ALL": "C.UTF-8", **environment}
        done = subprocess.run(command, env=bare, cwd=folder, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError("%s: exit %d\n%s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
    return done.stdout, done.stderr


def in_tree(path):
    return os.path.join(TREE, path)


def in_consumer(path):
    return os.path.join(CONSUMER, path)


def elf_files():
    for folder, _, names in os.walk(TREE):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def config_file(folder, text):
    path = os.path.join(folder, "consumer.toml")
    with open(path, "w") as file:
        file.write('schema = 1\nname = "consumer"\n[sampler]\nbatch_size = 8\n[gpu]\ndevice = "host"\n' + text)
    return path


SYNTHETIC = '[dataset]\ntype = "synthetic"\nsamples = 64\nbytes_per_sample = "4KiB"\nfill = "random"\n[loader]\nworkers = 3\n'


class Tree(unittest.TestCase):
    def test_every_file_needs_only_libraries_of_the_machine_and_of_the_tree(self):
        seen = 0
        for path in elf_files():
            for line in run("ldd", path)[0].splitlines():
                name, _, place = line.strip().partition(" => ")
                if OF_THE_MACHINE.match(name) or line.strip() == "statically linked":
                    continue
                place = os.path.realpath(place.split(" (")[0])
                self.assertTrue(place.startswith(TREE + "/"), "%s: %s" % (path, line))
                seen += 1
        self.assertGreater(seen, 0)

    def test_search_paths_in_programs_and_libraries_are_relative_to_the_file(self):
        for path in elf_files():
            for line in run("readelf", "-d", path)[0].splitlines():
                if "RPATH" in line or "RUNPATH" in line:
                    self.assertRegex(line, r"\[\$ORIGIN(/\.\.)*(/lib)?\]", path)

    def test_the_cmake_package_names_no_path_outside_the_tree(self):
        for path in glob.glob(in_tree("lib/cmake/penstock/*.cmake")):
            with open(path) as file:
                text = file.read()
            self.assertNotIn(STAGE, text)
            self.assertNotIn(os.path.dirname(BUILD), text)

    def test_the_tree_has_programs_libraries_headers_examples_and_licences(self):
        for path in ("bin/penstock", "libexec/penstock/penstock-worker", "libexec/penstock/penstock-gpu", "lib/libpenstock.so", "lib/libpenstock_worker.so",
                     "include/penstock/session.hpp", "include/penstock/config_keys.def", "share/penstock/examples/photos.toml",
                     "share/doc/penstock/LICENSE", "share/doc/penstock/docs/semantics/README.md"):
            self.assertTrue(os.path.exists(in_tree(path)), path)

    def test_the_libraries_export_only_names_of_penstock(self):
        for name in ("lib/libpenstock.so", "lib/libpenstock_worker.so"):
            symbols = run("nm", "-DC", "--defined-only", in_tree(name))[0].splitlines()
            self.assertTrue(any("penstock::" in s for s in symbols))
            self.assertEqual([s for s in symbols if "penstock::" not in s], [])


class Packages(unittest.TestCase):
    def packed(self, generator, suffix):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-G", generator, "-B", folder],
                           check=True, capture_output=True, timeout=100)
            found = glob.glob(os.path.join(folder, "*" + suffix))
            self.assertEqual(len(found), 1)
            yield found[0]

    def test_the_archive_has_the_tree_in_one_folder(self):
        for path in self.packed("TGZ", ".tar.gz"):
            with tarfile.open(path) as archive:
                names = archive.getnames()
        self.assertEqual(len({name.split("/")[0] for name in names}), 1)
        inside = {name.partition("/")[2] for name in names}
        for folder, _, files in os.walk(TREE):
            for name in files:
                self.assertIn(os.path.relpath(os.path.join(folder, name), TREE), inside)

    @unittest.skipUnless(shutil.which("dpkg-deb"), "no dpkg-deb")
    def test_the_debian_package_installs_into_opt_and_needs_only_glibc_and_the_compiler_libraries(self):
        for path in self.packed("DEB", ".deb"):
            needs = run("dpkg-deb", "-f", path, "Depends")[0]
            listing = run("dpkg-deb", "-c", path)[0]
        self.assertEqual({need.split()[0] for need in needs.split(",")}, {"libc6", "libgcc-s1", "libstdc++6"})
        outside = [line.split(None, 5)[5] for line in listing.splitlines() if not line.startswith("d") and " ./opt/penstock/" not in line]
        self.assertIn("./usr/bin/penstock -> /opt/penstock/bin/penstock", outside)
        self.assertEqual([line for line in outside if " -> /opt/penstock/" not in line], [])


class Version(unittest.TestCase):
    def test_every_part_has_the_version_of_the_project(self):
        self.assertIn("penstock %s " % VERSION, run(in_tree("bin/penstock"), "version")[0])
        self.assertEqual(json.loads(run(in_tree("bin/penstock"), "version", "--json")[0])["version"], VERSION)
        with open(in_tree("share/man/man1/penstock.1")) as page:
            self.assertRegex(page.read(), r'\.TH .*"penstock %s"' % re.escape(VERSION))
        with open(in_tree("lib/cmake/penstock/penstockConfigVersion.cmake")) as file:
            self.assertIn('set(PACKAGE_VERSION "%s")' % VERSION, file.read())
        self.assertTrue(os.path.exists(in_tree("lib/libpenstock.so." + VERSION)))
        with open(os.path.join(BUILD, "CPackConfig.cmake")) as file:
            self.assertIn('set(CPACK_PACKAGE_VERSION "%s")' % VERSION, file.read())

    def test_the_newest_section_of_the_changelog_is_the_version_or_the_one_after_it(self):
        with open(os.path.join(HERE, "..", "..", "CHANGELOG.md")) as file:
            sections = re.findall(r"^## \[([^\]]+)\]", file.read(), re.M)
        self.assertEqual(sections[0], "Unreleased")
        self.assertEqual(sections[1:2], [VERSION])

    def test_what_pip_reads_is_valid_toml(self):
        with open(os.path.join(HERE, "..", "..", "pyproject.toml"), "rb") as file:
            self.assertEqual(tomllib.load(file)["tool"]["scikit-build"]["cmake"]["define"]["PENSTOCK_PYTHON"], "ON")

    def test_no_file_repeats_the_version(self):
        top = os.path.join(HERE, "..", "..")
        said = re.compile(r"""(?:VERSION|version|__version__)["']?\s*[=:]?\s*["'(]?%s\b""" % re.escape(VERSION))
        found = []
        for name in ["CMakeLists.txt", "pyproject.toml", *glob.glob("python/**/*.py", root_dir=top, recursive=True),
                     *glob.glob("cmake/**/*.cmake", root_dir=top, recursive=True), *glob.glob("**/CMakeLists.txt", root_dir=top, recursive=True)]:
            if not name.startswith("build/"):
                with open(os.path.join(top, name)) as file:
                    found += [name for line in file if said.search(line)]
        self.assertEqual(set(found), {"CMakeLists.txt"})


class Workers(unittest.TestCase):
    def test_a_worker_contains_neither_cuda_nor_a_session(self):
        for path in [*map(in_tree, WORKER_FILES), in_consumer("counting-worker")]:
            symbols = run("nm", "-C", path)[0] + run("nm", "-DC", path)[0]
            self.assertIn("penstock::worker_main", symbols)
            # A name of penstock counts only at the start: messages to the owner are template arguments of CAF's symbols.
            unwanted = re.compile(r"\b(__)?cuda[A-Z]|\bcu[A-Z]|^[0-9a-f ]{16} . penstock::(Session|device::|gpu_owner)")
            self.assertEqual([s for s in symbols.splitlines() if unwanted.search(s)], [], path)
            self.assertNotIn("nv_fatbin", run("readelf", "-SW", path)[0], path)
            self.assertNotIn("libcuda", run("ldd", path)[0], path)
        self.assertNotIn("libpenstock.so", run("ldd", in_consumer("counting-worker"))[0])


class PkgConfig(unittest.TestCase):
    def flags(self, kind, package):
        return run("pkg-config", kind, package, PKG_CONFIG_PATH=in_tree("lib/pkgconfig"))[0].split()

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_programs_build_and_start_with_the_flags_of_pkg_config(self):
        for package, source in (("penstock", "feed.cpp"), ("penstock-worker", "counting_worker.cpp")):
            program = os.path.join(STAGE, "pkg-config-" + package)
            run(*COMPILER, "-std=c++20", "-c", os.path.join(HERE, "consumer", source), "-o", program + ".o",
                *self.flags("--cflags", package), HOME=os.path.expanduser("~"))
            run("g++", program + ".o", "-o", program, *self.flags("--libs", package))
        out, _ = run(os.path.join(STAGE, "pkg-config-penstock"), os.path.join(STAGE, "pkg-config-penstock-worker"))
        self.assertIn("rows 63 ", out)
        self.assertEqual(run("pkg-config", "--modversion", "penstock-worker", PKG_CONFIG_PATH=in_tree("lib/pkgconfig"))[0], VERSION + "\n")


class Headers(unittest.TestCase):
    def headers_behind(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as source:
            source.write(text)
            source.flush()
            rule = run("g++", "-std=c++20", "-M", "-I" + in_tree("include"), source.name)[0]
        return {os.path.realpath(word) for word in rule.replace("\\\n", " ").split()[2:]}

    def test_the_public_headers_need_only_the_standard_library(self):
        standard = self.headers_behind("#include <bits/stdc++.h>\n")
        headers = {name for name in os.listdir(in_tree("include/penstock")) if name.endswith(".hpp")}
        self.assertIn("session.hpp", headers)
        for header in sorted(headers):
            needed = self.headers_behind("#include <penstock/%s>\n" % header)
            foreign = {path for path in needed - standard if not path.startswith(in_tree("include/penstock/"))}
            self.assertEqual(foreign, set(), header)


class Examples(unittest.TestCase):
    def test_the_installed_examples_build_against_the_tree_and_do_what_they_say(self):
        sources, build = in_tree("share/penstock/examples"), os.path.join(STAGE, "examples")
        subprocess.run(["cmake", *FAST, "-S", sources, "-B", build, "-DCMAKE_PREFIX_PATH=" + TREE], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", build], check=True, stdout=subprocess.DEVNULL)
        example = lambda name, *arguments: run(os.path.join(build, name), *arguments)[0]
        self.assertIn("999 samples in 20 batches", example("01_run_config", os.path.join(sources, "configs", "synthetic.toml")))
        self.assertIn("to be", example("02_own_dataset", self.poem()).lower())
        ranks = os.path.join(STAGE, "ranks.toml")
        with open(ranks, "w") as file:
            file.write(SYNTHETIC)
        self.assertIn("together 64 samples, 64 different ones", example("05_two_ranks", ranks))
        self.assertEqual(example("06_watch_events").count("DEATH"), 5)
        if os.path.exists(os.path.join(build, "09_thumbnail_worker")):
            pictures = os.path.join(STAGE, "pictures")
            os.makedirs(pictures, exist_ok=True)
            with open(os.path.join(pictures, "broken.jpg"), "w") as file:
                file.write("this is no JPEG\n")
            said = example("09_thumbnails", pictures, os.path.join(STAGE, "small"))
            self.assertIn("broken.jpg: poisoned", said)
            self.assertIn("0 of 1 thumbnails", said)

    def poem(self):
        path = os.path.join(STAGE, "poem.txt")
        with open(path, "w") as file:
            file.write("to be\nor not to be\n")
        return path


class Pages(unittest.TestCase):
    """The C++ programs of the documentation, as they are printed there."""

    def built(self, *pages):
        """A folder with the files of these pages, built with their CMakeLists.txt."""
        folder = os.path.join(STAGE, "page-" + os.path.basename(pages[0]))
        os.makedirs(folder, exist_ok=True)
        for page in pages:
            with open(os.path.join(HERE, "..", "..", "docs", page)) as file:
                for text, name in re.findall(r"^```(?:cpp|cmake|toml)\n((?:#|//) (\w+\.\w+).*?)^```", file.read(), re.M | re.S):
                    with open(os.path.join(folder, name), "w") as out:
                        out.write(text)
        build = os.path.join(folder, "build")
        subprocess.run(["cmake", *FAST, "-S", folder, "-B", build, "-DCMAKE_PREFIX_PATH=" + TREE], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", build], check=True, stdout=subprocess.DEVNULL)
        return folder

    def in_folder(self, folder, command):
        return run("sh", "-c", f"cd {folder} && {command}", PATH=in_tree("bin") + ":/usr/bin:/bin")[0]

    def test_the_programs_of_the_cpp_start_page_take_the_batches_of_penstock_run(self):
        folder = self.built("start/cpp.md", "start/config.md")
        self.in_folder(folder, "rm -f photos.state; test -d photos || penstock sample-photos photos")
        report = json.loads(self.in_folder(folder, "penstock run photos.toml --digest --json"))
        self.assertIn("digest " + report["epochs"][0]["digest"], self.in_folder(folder, "build/mine"))
        self.assertEqual(self.in_folder(folder, "build/resume && build/resume && build/resume"),
                         "epoch 0, batch 0\nepoch 0, batch 1\nepoch 1, batch 0\n")

    def test_the_worker_program_of_the_dataset_page_feeds_penstock_run(self):
        report = json.loads(self.in_folder(self.built("datasets.md"), "penstock run points.toml --json"))
        self.assertEqual(report["totals"]["samples"], 1000)

    def test_the_job_of_the_page_on_jobs_has_its_result(self):
        self.assertEqual(self.in_folder(self.built("jobs.md"), "build/reverse"), "desserts")


class Programs(unittest.TestCase):
    def test_an_embedding_program_finds_the_worker_of_the_tree_through_the_library(self):
        workers = re.findall(r"worker (.*)", run(in_consumer("feed"))[0])
        self.assertEqual(set(workers), {in_tree("libexec/penstock/penstock-worker")})

    def test_an_embedding_program_gets_the_batches_that_penstock_run_gets(self):
        with tempfile.TemporaryDirectory() as folder:
            report = json.loads(run(in_tree("bin/penstock"), "run", config_file(folder, SYNTHETIC), "--digest", "--json")[0])
        self.assertIn("rows 64 digest %s\n" % report["epochs"][0]["digest"], run(in_consumer("feed"))[0])

    def test_a_custom_worker_program_feeds_an_embedding_program(self):
        worker = in_consumer("counting-worker")
        out, _ = run(in_consumer("feed"), worker)
        self.assertEqual(set(re.findall(r"worker (.*)", out)), {worker})
        self.assertIn("failed number 13: thirteen brings bad luck\n", out)
        self.assertIn("rows 63 ", out)

    def test_a_custom_worker_program_feeds_penstock_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = config_file(folder, '[dataset]\ntype = "custom"\noptions = { samples = "64" }\n[loader]\nworkers = 2\n'
                                       'command = ["%s"]\n' % in_consumer("counting-worker"))
            report = json.loads(run(in_tree("bin/penstock"), "run", path, "--json")[0])
        self.assertEqual(report["totals"]["samples"], 63)
        self.assertEqual(report["failures"][0]["path"], "number 13")

    def test_a_custom_device_program_needs_no_library_of_penstock(self):
        self.assertIn("penstock_device_program", run("nm", "-D", "--defined-only", in_consumer("librow-counter.so"))[0])
        for line in run("ldd", in_consumer("librow-counter.so"))[0].splitlines():
            self.assertRegex(line.strip(), OF_THE_MACHINE)

    def test_a_custom_device_program_runs_in_penstock_run(self):
        with tempfile.TemporaryDirectory() as folder:
            _, err = run(in_tree("bin/penstock"), "run", config_file(folder, SYNTHETIC), "--sink",
                         "plugin:" + in_consumer("librow-counter.so"))
        self.assertIn("row-counter saw 64 rows", err)

    def test_penstock_finds_its_worker_when_it_is_called_through_a_link(self):
        with tempfile.TemporaryDirectory() as folder:
            link = os.path.join(folder, "penstock")
            os.symlink(in_tree("bin/penstock"), link)
            report = json.loads(run(link, "run", config_file(folder, SYNTHETIC), "--json")[0])
        self.assertEqual(report["outcome"], "finished")

    def test_the_environment_variable_for_the_worker_takes_precedence(self):
        with tempfile.TemporaryDirectory() as folder:
            # In a separate tree, because programs find their libraries relative to themselves.
            elsewhere = os.path.join(folder, "penstock")
            shutil.copytree(TREE, elsewhere, symlinks=True)
            out, _ = run(in_consumer("feed"), PENSTOCK_LIBEXEC=os.path.join(elsewhere, "libexec/penstock"))
            self.assertIn("worker %s/libexec/penstock/penstock-worker\n" % elsewhere, out)


if __name__ == "__main__":
    if sys.argv[1:] == ["prepare"]:
        prepare()
    else:
        run_tests()
