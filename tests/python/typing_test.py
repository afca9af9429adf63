"""Programs that use the package pass mypy --strict, and the stub of the module matches the module."""

import ast
import importlib.util
import json

from package import *


class TypingTest(PackageTest):
    def test_the_examples_and_the_package_pass_mypy_strict(self):
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        self.need_torch()
        examples = [os.path.join(TOP, "examples", name) for name in sorted(os.listdir(os.path.join(TOP, "examples"))) if name.endswith(".py")]
        self.assertTrue(examples)
        cache = os.path.join(os.path.dirname(BIN), "mypy-cache")  # in the build tree: the second time takes a third
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache,
                               "--config-file", os.path.join(TOP, "pyproject.toml"), "-p", "penstock", ], capture_output=True, text=True,
                              env={**self.environment, "MYPYPATH": os.path.join(TOP, "python")}, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for example in examples:
            done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, example],
                                  capture_output=True, text=True, cwd=self.folder,
                                  env={**self.environment, "MYPYPATH": os.path.join(TOP, "python")})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_stubs_name_what_the_modules_have(self):
        for name in ("_core", "_group", "_worker"):
            members = json.loads(self.ran("""
                import importlib, json, sys
                there = {name: each for name, each in vars(importlib.import_module("penstock." + sys.argv[1])).items() if name[0] != "_"}
                print(json.dumps({name: [member for member in vars(each) if member[0] != "_"] if isinstance(each, type) else None
                                  for name, each in there.items()}))
                """, name))  # in a process of its own, as they are used
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
