"""What tools/release makes, and how it packs it.

Packing needs nothing. Release is about a whole release (label soak): its sums, what its programs need of a machine, its wheels in a fresh
environment without a compiler, and the same bytes when it is made again in another folder. PENSTOCK_RELEASE names a release that
exists; otherwise `release_test.py prepare` makes one in PENSTOCK_STAGE. Bare trees of other distributions: tools/test-distributions --release.
"""

import glob
import gzip
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from run_tests import run_tests  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STAGE = os.environ.get("PENSTOCK_STAGE") or os.path.join(TOP, "build", "release-test")
RELEASE = os.environ.get("PENSTOCK_RELEASE") or os.path.join(STAGE, "release")

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = os.path.join(HERE, "bare.toml")
FIRST_BATCH = os.path.join(HERE, "first_batch.py")

# All libraries of the machine that a program or library of a release may need.
OF_THE_MACHINE = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}


# ---- packing ---------------------------------------------------------------------------------------------------------

def tar_bytes(names, mtime, owner, mode):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.mtime, info.uid, info.uname, info.mode = mtime, owner, "u%d" % owner, mode
            content = FILES[name]
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "../opt/program"
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


FILES = {"./opt/program": b"\x7fELF" + b"x" * 3000, "./opt/notes.txt": b"notes\n", "./usr/command": None}


def deb_bytes(mtime, order, size):
    sums = "".join("%s  %s\n" % (hashlib.md5(FILES[name]).hexdigest(), name[2:]) for name in order if FILES[name] is not None).encode()
    control = io.BytesIO()
    with tarfile.open(fileobj=control, mode="w:gz") as archive:
        for name, content in (("./control", b"Package: penstock\nVersion: 1\nMaintainer: x <x@localhost>\nInstalled-Size: %d\nDescription: x\n" % size), ("./md5sums", sums)):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), mtime
            archive.addfile(info, io.BytesIO(content))
    parts = [(b"debian-binary", b"2.0\n"), (b"control.tar.gz", control.getvalue()),
             (b"data.tar.gz", gzip.compress(tar_bytes(order, mtime, 1000, 0o755)))]
    out = b"!<arch>\n"
    for name, data in parts:
        out += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, mtime, 7, 7, b"100600", len(data)) + data + b"\n" * (len(data) % 2)
    return out


def wheel_bytes(names, when):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        record = "".join("%s,sha256=x,1\n" % name for name in names) + "p-1.dist-info/RECORD,,\n"
        for name in ["p-1.dist-info/RECORD", *names]:
            info = zipfile.ZipInfo(name, when)
            info.external_attr = (0o100775 if name.endswith("program") else 0o100600) << 16
            archive.writestr(info, record if name.endswith("RECORD") else name)
    return out.getvalue()


class Packing(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="penstock-packing-")
        self.addCleanup(shutil.rmtree, self.folder)
        loader = importlib.machinery.SourceFileLoader("release_pack", os.path.join(TOP, "tools", "release-pack"))
        self.pack = importlib.util.module_from_spec(importlib.util.spec_from_loader("release_pack", loader))
        loader.exec_module(self.pack)
        self.pack.EPOCH = 1_700_000_000

    def path(self, name, data=None):
        path = os.path.join(self.folder, name)
        if data is not None:
            with open(path, "wb") as file:
                file.write(data)
        return path

    def packed(self, verb, data):
        getattr(self.pack, verb)(self.path("in", data), self.path("out"))
        with open(self.path("out"), "rb") as file:
            return file.read()

    def test_bytes_of_an_archive_do_not_depend_on_order_time_owner_or_umask(self):
        one = self.packed("archive", tar_bytes(FILES, 1, 0, 0o755))
        self.assertEqual(one, self.packed("archive", tar_bytes(reversed(FILES), 2, 1000, 0o700)))
        with tarfile.open(fileobj=io.BytesIO(one)) as archive:
            members = archive.getmembers()
            self.assertEqual([m.name for m in members], ["./opt/notes.txt", "./opt/program", "./usr/command"])
            self.assertEqual({(m.mtime, m.uid, m.gid, m.uname) for m in members}, {(1_700_000_000, 0, 0, "root")})
            self.assertEqual(archive.extractfile("./opt/program").read(), FILES["./opt/program"])
            self.assertEqual(members[2].linkname, "../opt/program")

    def test_only_executable_files_are_executable_in_the_archive(self):
        packed = self.packed("archive", tar_bytes(["./opt/notes.txt"], 1, 0, 0o640))
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            self.assertEqual([oct(m.mode) for m in archive], ["0o644"])

    def test_bytes_of_a_debian_package_do_not_depend_on_order_time_or_file_system(self):
        one = self.packed("deb", deb_bytes(1, list(FILES), 11))
        self.assertEqual(one, self.packed("deb", deb_bytes(2, list(reversed(FILES)), 12)))
        if shutil.which("dpkg-deb"):
            field = subprocess.run(["dpkg-deb", "-f", self.path("out"), "Package", "Installed-Size"], check=True, stdout=subprocess.PIPE, text=True)
            self.assertEqual(field.stdout, "Package: penstock\nInstalled-Size: 5\n")  # 3 + 1 + 1 KiB
            subprocess.run(["dpkg-deb", "-x", self.path("out"), self.path("tree")], check=True)
            with open(self.path("tree/opt/program"), "rb") as file:
                self.assertEqual(file.read(), FILES["./opt/program"])

    def test_bytes_of_a_wheel_do_not_depend_on_order_or_time_and_its_record_comes_last(self):
        names = ["p/b.py", "p/a.py", "p/program", "p-1.dist-info/METADATA"]
        one = self.packed("wheel", wheel_bytes(names, (2020, 1, 1, 0, 0, 0)))
        self.assertEqual(one, self.packed("wheel", wheel_bytes(names[::-1], (2021, 1, 1, 0, 0, 0))))
        with zipfile.ZipFile(io.BytesIO(one)) as wheel:
            self.assertEqual(wheel.namelist(), ["p/a.py", "p/b.py", "p/program", "p-1.dist-info/METADATA", "p-1.dist-info/RECORD"])
            self.assertEqual([oct(i.external_attr >> 16) for i in wheel.infolist()[1:3]], ["0o100644", "0o100755"])
            self.assertEqual(wheel.infolist()[0].date_time, (2023, 11, 14, 22, 13, 20))

    def test_a_library_without_a_known_licence_is_excluded_from_a_release(self):
        lines = ["%s 1.0\n" % name for name in self.pack.MATERIALS]
        with open(self.path("materials"), "w") as file:
            file.writelines(lines)
        os.mkdir(self.path("release"))
        self.path("release/penstock.whl", b"wheel")
        self.pack.sbom("9.9", self.path("materials"), self.path("release"))
        with open(self.path("release/penstock-9.9.spdx.json")) as file:
            self.assertEqual(len(json.load(file)["packages"]), 1 + len(lines))
        for wrong, said in ((lines + ["libother-dev 2.0\n"], "without a licence in MATERIALS: libother-dev"), (lines[1:], "without a line: actor-framework")):
            with open(self.path("materials"), "w") as file:
                file.writelines(wrong)
            with self.assertRaisesRegex(SystemExit, said):
                self.pack.sbom("9.9", self.path("materials"), self.path("release"))


# ---- a release -------------------------------------------------------------------------------------------------------

def prepare():
    if not os.environ.get("PENSTOCK_RELEASE"):
        os.makedirs(STAGE, exist_ok=True)
        subprocess.run([os.path.join(TOP, "tools", "release"), "--out", RELEASE], check=True, timeout=7000)


def artefact(pattern):
    found = glob.glob(os.path.join(RELEASE, pattern))
    assert len(found) == 1, "%s: %s" % (pattern, found)
    return found[0]


def interpreters():
    """The interpreters for which each wheel of the release is made."""
    for wheel in sorted(glob.glob(os.path.join(RELEASE, "*.whl"))):
        minor = re.search(r"-cp3(\d+)-", wheel).group(1)
        for candidate in ["python3." + minor, *glob.glob(os.path.expanduser("~/.pyenv/versions/3.%s.*/bin/python3" % minor))]:
            asked = subprocess.run([candidate, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True) \
                if shutil.which(candidate) else None
            if asked and asked.returncode == 0:
                yield wheel, asked.stdout.strip()
                break


class Release(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="penstock-release-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_bare(self, *command, path="", timeout=120):
        """Runs a command with only `path` on PATH. Returns the output."""
        settings = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_"))}
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=timeout,
                              env={"PATH": path, "HOME": self.folder, "XDG_RUNTIME_DIR": self.folder, "LC_ALL": "C.UTF-8", **settings})
        self.assertEqual(done.returncode, 0, "%s: %s%s" % (" ".join(command), done.stdout, done.stderr))
        return done.stdout

    def unpacked(self):
        with tarfile.open(artefact("*.tar.gz")) as archive:
            archive.extractall(self.folder)
        tree, = [os.path.join(self.folder, name) for name in os.listdir(self.folder)]
        return tree

    def test_each_wheel_installs_and_loads_a_batch_within_30_seconds_without_a_compiler(self):
        tried = 0
        for wheel, python in interpreters():
            venv = os.path.join(self.folder, os.path.basename(wheel)[:40])
            subprocess.run([python, "-m", "venv", venv], check=True)
            binaries = os.path.join(venv, "bin")
            for compiler in ("cc", "gcc", "g++", "clang", "cmake", "nvcc"):
                self.assertIsNone(shutil.which(compiler, path=binaries))
            begin = time.monotonic()
            self.run_bare(os.path.join(binaries, "pip"), "install", "--quiet", wheel, path=binaries)
            self.assertIn("rows 8 ", self.run_bare(os.path.join(binaries, "python"), FIRST_BATCH, CONFIG, path=binaries))
            seconds = time.monotonic() - begin
            print("%s: %.1f s from pip install to the first batch" % (os.path.basename(wheel), seconds))
            self.assertLess(seconds, 30)
            self.assertIn("penstock ", self.run_bare(os.path.join(binaries, "penstock"), "version", path=binaries))
            tried += 1
        self.assertGreater(tried, 0)

    def test_wheels_need_no_glibc_beyond_2_31(self):
        for wheel in glob.glob(os.path.join(RELEASE, "*.whl")):
            oldest = min(int(minor) for minor in re.findall(r"manylinux_2_(\d+)_x86_64", wheel))
            self.assertLessEqual(oldest, 31, wheel)

    def test_the_archive_runs_where_it_is_unpacked(self):
        penstock = os.path.join(self.unpacked(), "bin", "penstock")
        self.assertIn("penstock ", self.run_bare(penstock, "version"))
        photos = os.path.join(self.folder, "photos")
        self.run_bare(penstock, "sample-photos", photos, "5")
        self.assertEqual(len(glob.glob(os.path.join(photos, "class-*", "*.jpg"))), 5)

    def test_programs_and_libraries_need_only_glibc_and_none_beyond_2_31(self):
        tree, found = self.unpacked(), 0
        for folder, _, names in os.walk(tree):
            for path in (os.path.join(folder, name) for name in names):
                with open(path, "rb") as file:
                    if file.read(4) != b"\x7fELF":
                        continue
                said = subprocess.run(["objdump", "-p", path], check=True, capture_output=True, text=True).stdout
                self.assertLessEqual(set(re.findall(r"NEEDED +(\S+)", said)) - {"libpenstock.so.0", "libpenstock_worker.so.0"}, OF_THE_MACHINE, path)
                for minor in re.findall(r"GLIBC_2\.(\d+)", said):
                    self.assertLessEqual(int(minor), 31, path)
                found += 1
        self.assertGreaterEqual(found, 5)

    def test_no_file_names_the_folder_that_it_was_built_in(self):
        tree = self.unpacked()
        for folder, _, names in os.walk(tree):
            for path in (os.path.join(folder, name) for name in names if not os.path.islink(os.path.join(folder, name))):
                with open(path, "rb") as file:
                    self.assertNotIn(b"build/sysroot", file.read(), path)

    def test_the_checksums_match_the_files_and_the_bill_of_materials_names_each(self):
        with open(os.path.join(RELEASE, "SHA256SUMS")) as file:
            sums = dict(reversed(line.split()) for line in file)
        self.assertEqual(set(sums) | {"SHA256SUMS"}, set(os.listdir(RELEASE)))
        for name, value in sums.items():
            with open(os.path.join(RELEASE, name), "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), value, name)
        with open(artefact("*.spdx.json")) as file:
            bill = json.load(file)
        self.assertEqual({file["fileName"][2:] for file in bill["files"]}, {name for name in sums if not name.endswith(".spdx.json")})

    def test_a_second_build_in_another_folder_with_one_job_and_no_cache_has_the_same_bytes(self):
        source = os.path.join(self.folder, "somewhere", "else")
        subprocess.run(["git", "clone", "-q", TOP, source], check=True)
        again = os.path.join(self.folder, "again")
        subprocess.run([os.path.join(source, "tools", "release"), "--out", again], check=True, timeout=7000,
                       env={**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "1", "CCACHE_DISABLE": "1"})
        with open(os.path.join(RELEASE, "SHA256SUMS")) as first, open(os.path.join(again, "SHA256SUMS")) as second:
            self.assertEqual(first.read(), second.read())


if __name__ == "__main__":
    if sys.argv[1:] == ["prepare"]:
        prepare()
    else:
        run_tests()
