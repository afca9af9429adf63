"""Programs that use the package pass mypy --strict, and the stub of the module matches the module."""

import ast
import importlib.util
import json
import textwrap

from package import *


class TypingTest(PackageTest):
    def mypy(self, kind, *arguments):
        """Runs mypy. `kind` names mypy's cache in the build tree: a cache is useless for calls with other options."""
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        self.need_torch()
        cache = os.path.join(os.path.dirname(BIN), "mypy-cache", kind)
        return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *arguments], capture_output=True, text=True,
                              env={**self.environment, "MYPYPATH": os.path.join(TOP, "python")}, cwd=self.folder)

    def test_the_examples_and_the_package_pass_mypy_strict(self):
        examples = [os.path.join(TOP, "examples", name) for name in sorted(os.listdir(os.path.join(TOP, "examples"))) if name.endswith(".py")]
        self.assertTrue(examples)
        # The libraries of the examples may have no types or may not be installed.
        libraries = ["--ignore-missing-imports", "--allow-subclassing-any", "--allow-untyped-calls", "--follow-imports", "silent"]
        for done in (self.mypy("package", "--config-file", os.path.join(TOP, "pyproject.toml"), "-p", "penstock"),
                     self.mypy("examples", *libraries, *examples)):
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_mistakes_in_loader_arguments_are_found_and_batches_have_types(self):
        program = os.path.join(self.folder, "program.py")
        with open(program, "w") as file:
            file.write(textwrap.dedent("""
                import torch
                from torch.utils.data import Dataset
                from penstock.torch import DataLoader

                tensors: Dataset[torch.Tensor]
                pairs: Dataset[tuple[torch.Tensor, int]]
                def joined(samples: list[tuple[torch.Tensor, int]]) -> dict[str, torch.Tensor]: ...

                for one in DataLoader(tensors, batch_size=4, shuffle=True, num_workers=2, seed=1): reveal_type(one)
                for two in DataLoader(pairs, 4, collate_fn=joined, num_workers=2, device="cuda"): reveal_type(two)
                for three in DataLoader(pairs, batch_size=None): reveal_type(three)
                DataLoader(pairs, batchsize=3)
                DataLoader(pairs, batch_size="3")
                DataLoader(pairs, on_bad_sample=3)
                """))
        done = self.mypy("program", program)
        lines = done.stdout.splitlines()
        told = [line.split('"')[1] for line in lines if "Revealed type" in line]
        told = [each.replace("builtins.", "") for each in told]
        self.assertEqual(told, ["torch._tensor.Tensor", "dict[str, torch._tensor.Tensor]", "tuple[torch._tensor.Tensor, int]"], done.stdout)
        for line in (13, 14, 15):
            self.assertTrue([each for each in lines if each.startswith("program.py:%d: error" % line)], done.stdout)

    def test_the_stubs_contain_what_the_modules_contain(self):
        for name in ("_core", "_group", "_worker"):
            members = json.loads(self.ran("""
                import importlib, json, sys
                there = {name: each for name, each in vars(importlib.import_module("penstock." + sys.argv[1])).items() if name[0] != "_"}
                print(json.dumps({name: [member for member in vars(each) if member[0] != "_"] if isinstance(each, type) else None
                                  for name, each in there.items()}))
                """, name))  # in a separate process, as users have it
            with open(os.path.join(TOP, "python", "penstock", name + ".pyi")) as file:
                stub = ast.parse(file.read())
            named = {node.name for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
            named |= {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names} - {None}
            self.assertEqual(named, set(members))
            for node in stub.body:
                if isinstance(node, ast.ClassDef):
                    stubbed = {n.name for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")}
                    self.assertEqual(stubbed, set(members[node.name]), node.name)


if __name__ == "__main__":
    main()
