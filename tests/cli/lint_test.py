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

    def test_a_tree_that_follows_the_table_passes_with_and_without_git(self):
        self.file("runtime/device/a.cpp", '#include "runtime/base/b.hpp"\n#include <penstock/c.hpp>\n#include <fmt/core.h>\n#include <sys/mman.h>\n'
                                          '#include "runtime/device/cuda/d.hpp"\n#include <vector>\n')
        self.file("runtime/device/cuda/e.cu", "#include <cuda_runtime.h>\n")
        self.assertEqual(self.lint(), "")
        self.assertEqual(self.lint(path="/nonexistent"), "")

    def test_a_walk_that_names_a_function_missing_from_the_code_is_a_violation(self):
        self.file("runtime/base/there.cpp", "void here() {}\n")
        with open(os.path.join(self.tree, "docs", "ARCHITECTURE.md"), "a") as file:
            file.write("| `base/there.cpp: here` | `base/there.cpp: gone` | `base/moved.cpp: here` |\n")
        said = self.lint()
        self.assertEqual(said.count("\n"), 2, said)
        self.assertIn("a walk stops at base/there.cpp: gone, but that file has no such function", said)
        self.assertIn("a walk stops at base/moved.cpp, but 0 files have such a path", said)

    def test_an_include_that_the_table_does_not_allow_is_a_violation(self):
        self.file("runtime/device/a.cpp", "#include <vector>\n#include <cuda_runtime.h>\n")
        self.file("runtime/base/b.hpp", HEADER + '#include "runtime/device/c.hpp"\n')
        self.assertEqual(self.lint().splitlines(), [
            "runtime/base/b.hpp:3: runtime/base may not include <runtime/device/c.hpp> (docs/ARCHITECTURE.md)",
            "runtime/device/a.cpp:2: runtime/device may not include <cuda_runtime.h> (docs/ARCHITECTURE.md)"])

    def test_a_book_with_a_lock_or_a_clock_is_a_violation(self):
        self.file("runtime/base/a_book.cpp", "#include <vector>\n#include <mutex>\nauto t = std::chrono::steady_clock::now();\n")
        self.assertEqual(self.lint().splitlines(), ["runtime/base/a_book.cpp:2: a book is pure, so it has no mutex",
                                                    "runtime/base/a_book.cpp:3: a book is pure, so it has no steady_clock::now"])

    def test_folders_and_names_missing_in_the_table_or_in_the_tree_are_violations(self):
        self.file("runtime/attic/a.cpp", "")
        self.table("| runtime/base | x | public API, frobnicate |", "| runtime/gone | x | base |")
        said = self.lint()
        self.assertIn("'frobnicate' is not a folder of runtime/ or actors/, and tools/lint knows no library of this name", said)
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

    def test_an_actor_of_more_than_350_lines_is_a_violation(self):
        self.file("actors/protocol/a.cpp", "\n" * 350)
        self.file("runtime/base/b.cpp", "\n" * 351)
        self.assertEqual(self.lint(), "")
        self.file("actors/protocol/a.cpp", "\n" * 351)
        self.assertIn("actors/protocol/a.cpp: 351 lines, more than 350", self.lint())

    def test_a_host_name_of_a_package_registry_is_a_violation(self):
        self.file("notes.txt", "see py" + "pi.org\n")
        self.assertIn("notes.txt:1: the host name of a package registry", self.lint())

    # Citations in the texts below are spelled in pieces, so that tools/lint does not take them for citations in this file.

    def book(self, **pages):
        rows = "".join("| %s | [%s.md](%s.md) | x |\n" % (page[0].upper(), page, page) for page in pages)
        self.file("docs/semantics/README.md", "# Rules\n\n| letter | page | x |\n| --- | --- | --- |\n" + rows)
        for page, paragraphs in pages.items():
            self.file("docs/semantics/%s.md" % page, "\n\n".join(["# A page", "About.", "## Section", *paragraphs]) + "\n")

    def test_citations_of_existing_rules_pass(self):
        self.book(streams=["**S1. Plan.** Pure.", "**S3. Bytes.** As S1 and J1."], jobs=["**J1. A job.** One outcome."])
        self.file("runtime/base/a.hpp", HEADER + "// By rule" + " S1, and rules" + " S1-S3, J1; by the rules" + "\n// S3 and J1. Rules may hold 3 of them.\n")
        self.assertEqual(self.lint(), "")

    def test_a_citation_of_a_rule_that_does_not_exist_is_a_violation(self):
        self.book(streams=["**S1. Plan.** Pure.", "**S2. Bytes.** As S1 and S4."])
        self.file("a.py", "x = 1  # rule" + " S3\n# rules" + " S1-S5\n# by rules" + "\n# S1 and X7\n")
        self.assertEqual(self.lint().splitlines(), [
            "a.py:1: there is no rule" + " S3 in docs/semantics/", "a.py:2: there is no rule" + " S5 in docs/semantics/",
            "a.py:3: there is no rule" + " X7 in docs/semantics/", "docs/semantics/streams.md:9: there is no rule" + " S4 in docs/semantics/"])

    def test_a_citation_without_a_topic_is_a_violation(self):
        self.file("a.py", "# (rule" + " 21a)\n# see semantics" + " 4\n")
        self.assertEqual(self.lint().splitlines(), [
            "a.py:1: 'rule" + " 21a' does not name a topic's rule (docs/semantics/README.md says how to cite)",
            "a.py:2: 'semantics" + " 4' does not name a topic's rule (docs/semantics/README.md says how to cite)"])

    def test_a_rule_number_that_is_repeated_out_of_order_or_on_another_page_is_a_violation(self):
        self.book(streams=["**S2. A.** B.", "**S2. A.** B.", "**S1. A.** B.", "**J3. A.** B."], jobs=["**J1. A.** B."])
        self.assertEqual(self.lint().splitlines(), [
            "docs/semantics/streams.md:9: rule" + " S2 comes after rule" + " S2", "docs/semantics/streams.md:11: rule" + " S1 comes after rule" + " S2",
            "docs/semantics/streams.md:13: rule" + " J3 is on the page of the rules" + " S"])

    def test_a_rule_of_more_than_80_words_and_a_paragraph_without_a_number_are_violations(self):
        self.book(streams=["**S1. Plan.**" + " word" * 78, "**S2. Plan.**" + " word" * 79, "And another thing."])
        self.assertEqual(self.lint().splitlines(), [
            "docs/semantics/streams.md:9: rule" + " S2 has 81 words, more than 80",
            "docs/semantics/streams.md:11: a paragraph that does not begin with the number of its rule"])

    def test_a_page_of_rules_that_the_index_lacks_and_one_that_does_not_exist_are_violations(self):
        self.book(streams=["**S1. Plan.** Pure."], jobs=["**J1. A job.** One outcome."])
        os.rename(os.path.join(self.tree, "docs/semantics/jobs.md"), os.path.join(self.tree, "docs/semantics/work.md"))
        self.assertEqual(self.lint().splitlines(), [
            "docs/semantics/README.md: docs/semantics/jobs.md does not exist",
            "docs/semantics/README.md: docs/semantics/work.md is not in the table of topics"])


class BuildTest(PenstockTest):
    def test_warnings_are_errors_in_the_preset_dev_and_not_in_the_commands_of_the_readme(self):
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
