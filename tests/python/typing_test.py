"""Programs that use the package pass mypy --strict, and the stub of the module matches the module."""

import importlib.util
import inspect

import penstock
from package import *


class TypingTest(PackageTest):
    def test_the_examples_and_the_package_pass_mypy_strict(self):
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        examples = [os.path.join(TOP, "examples", name) for name in sorted(os.listdir(os.path.join(TOP, "examples"))) if name.endswith(".py")]
        self.assertTrue(examples)
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.path.join(self.folder, "cache"),
                               "--config-file", os.path.join(TOP, "pyproject.toml"), "-p", "penstock", ], capture_output=True, text=True,
                              env={**self.environment, "MYPYPATH": os.path.join(TOP, "python")}, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for example in examples:
            done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.path.join(self.folder, "cache"), example],
                                  capture_output=True, text=True, cwd=self.folder,
                                  env={**self.environment, "MYPYPATH": os.path.join(TOP, "python")})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_stub_names_what_the_module_has(self):
        import ast

        from penstock import _core
        with open(os.path.join(TOP, "python", "penstock", "_core.pyi")) as file:
            stub = ast.parse(file.read())
        for node in stub.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.assertTrue(hasattr(_core, node.name), node.name)
            if isinstance(node, ast.ClassDef):
                stubbed = {n.name for n in node.body if isinstance(n, ast.FunctionDef)} - {"__buffer__"}
                there = {name for name in vars(getattr(_core, node.name)) if not name.startswith("_")}
                self.assertEqual({n for n in stubbed if not n.startswith("_")}, there, node.name)


if __name__ == "__main__":
    main()
