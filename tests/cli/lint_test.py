"""tools/lint finds violations, in a checkout and in a tree unpacked from an archive."""

import shutil
import subprocess
import tempfile

from harness import *

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = "// For nobody.\n#pragma once\n"


class LintTest(PenstockTest):
    def setUp(self):
        super().setUp()
        # A small tree below a folder called build, without git, like an unpacked archive.
        self.tree = os.path.join(self.folder, "build", "penstock")
        for folder in ("runtime/base", "runtime/device/cuda", "runtime/include/penstock", "actors/protocol"):
            os.makedirs(os.path.join(self.tree, folder))
        self.table("| runtime/base | x | public API, fmt |", "| runtime/include/penstock | x | |", "| runtime/device | x | base |",
                   "| runtime/device/cuda | x | base, device, CUDA |", "| actors/protocol | x | base, CAF |", "| tools | x | anything above |")

    def table(self, *rows):
        self.file("docs/ARCHITECTURE.md", "\n".join(["# A", "", "| folder | what | may include |", "| --- | --- | --- |", *rows, "", "B", ""]))

    def file(self, name, text):
        self.write(os.path.join(self.tree, name), text)

    def lint(self, path=os.environ["PATH"]):
        done = subprocess.run([sys.executable, os.path.join(TOP, "tools", "lint"), self.tree], capture_output=True, text=True,
                              env={"PATH": path, "GIT_CEILING_DIRECTORIES": self.folder})
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 1 if done.stdout else 0)
        return done.stdout

    def test_a_tree_that_keeps_to_the_table_passes_with_and_without_git(self):
        self.file("runtime/device/a.cpp", '#include "runtime/base/b.hpp"\n#include <penstock/c.hpp>\n#include <fmt/core.h>\n#include <sys/mman.h>\n'
                                          '#include "runtime/device/cuda/d.hpp"\n#include <vector>\n')
        self.file("runtime/device/cuda/e.cu", "#include <cuda_runtime.h>\n")
        self.assertEqual(self.lint(), "")
        self.assertEqual(self.lint(path="/nonexistent"), "")

    def test_an_include_that_the_table_does_not_allow_is_an_offence(self):
        self.file("runtime/device/a.cpp", "#include <vector>\n#include <cuda_runtime.h>\n")
        self.file("runtime/base/b.hpp", HEADER + '#include "runtime/device/c.hpp"\n')
        self.assertEqual(self.lint().splitlines(), [
            "runtime/base/b.hpp:3: runtime/base may not include <runtime/device/c.hpp> (docs/ARCHITECTURE.md)",
            "runtime/device/a.cpp:2: runtime/device may not include <cuda_runtime.h> (docs/ARCHITECTURE.md)"])

    def test_folders_and_names_that_the_table_or_the_tree_lacks_are_offences(self):
        self.file("runtime/attic/a.cpp", "")
        self.table("| runtime/base | x | public API, frobnicate |", "| runtime/gone | x | base |")
        said = self.lint()
        self.assertIn("'frobnicate' is no folder of runtime/ or actors/, and tools/lint knows no library of this name", said)
        self.assertIn("there is no folder runtime/gone", said)
        self.assertIn("runtime/attic/a.cpp: its folder is not in the table", said)

    def test_build_folders_are_not_walked(self):
        bad = "runtime/base/bad.hpp"
        self.file(bad, "int x;\n")
        self.assertIn(bad + ":1: a header begins with what it is for", self.lint())
        os.unlink(os.path.join(self.tree, bad))
        for folder in ("build", "build-release", ".cache", "elsewhere"):
            self.file(os.path.join(folder, bad), "int x;\n")
            self.file(os.path.join(folder, "words.txt"), "py" + "pi.org\n")
        self.file("elsewhere/CMakeCache.txt", "")
        self.assertEqual(self.lint(), "")

    def test_an_actor_of_more_than_400_lines_is_an_offence(self):
        self.file("actors/protocol/a.cpp", "\n" * 400)
        self.file("runtime/base/b.cpp", "\n" * 401)
        self.assertEqual(self.lint(), "")
        self.file("actors/protocol/a.cpp", "\n" * 401)
        self.assertIn("actors/protocol/a.cpp: 401 lines, more than 400", self.lint())

    def test_a_host_name_of_a_package_registry_is_an_offence(self):
        self.file("notes.txt", "see py" + "pi.org\n")
        self.assertIn("notes.txt:1: the host name of a package registry", self.lint())


class BuildTest(PenstockTest):
    def test_warnings_are_errors_in_the_preset_dev_alone_and_in_neither_command_of_the_readme(self):
        with open(os.path.join(TOP, "CMakePresets.json")) as file:
            presets = json.load(file)["configurePresets"]
        strict = [preset["name"] for preset in presets if "Werror" in str(preset) or "PENSTOCK_WERROR" in preset.get("cacheVariables", {})]
        self.assertEqual(strict, ["dev"])
        self.assertEqual([preset["name"] for preset in presets if "dev" in preset.get("inherits", "")], [])
        for command in "quickstart", "test":
            with open(os.path.join(TOP, "tools", command)) as file:
                text = file.read()
            self.assertNotIn("WERROR", text.upper())
            self.assertNotRegex(text, r"(--preset|build) dev\b")


if __name__ == "__main__":
    main()
