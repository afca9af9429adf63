"""The JSON Schema, checked with an independent validator: it accepts and rejects the same files as the program."""

import glob
import re
import tomllib

from harness import *

import jsonschema

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORPUS = os.path.join(TOP, "tests", "runtime", "config", "corpus")


def plain(value):
    """TOML's times as text, because JSON has none."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value if isinstance(value, (str, int, float, bool)) else str(value)


class SchemaTest(PenstockTest):
    def setUp(self):
        super().setUp()
        code, out, err = self.penstock("schema")
        self.assertEqual(code, EXIT_OK, err)
        schema = json.loads(out)
        jsonschema.Draft7Validator.check_schema(schema)
        self.validator = jsonschema.Draft7Validator(schema)

    def accepts(self, path):
        with open(path, "rb") as file:
            text = file.read().removeprefix(b"\xef\xbb\xbf").decode()
        return self.validator.is_valid(plain(tomllib.loads(text)))

    def program_accepts(self, path):
        return self.penstock("check-config", path, cwd=os.path.dirname(path))[0] == EXIT_OK

    def test_the_program_and_the_schema_accept_good_files(self):
        files = glob.glob(os.path.join(CORPUS, "good", "*.toml")) + glob.glob(os.path.join(TOP, "examples", "**", "*.toml"), recursive=True)
        self.assertGreater(len(files), 12)
        for path in files:
            self.assertTrue(self.accepts(path), path)

    def test_effective_values_and_explanations_are_available_as_json(self):
        path = self.write("s.toml", synthetic(samples=17))
        code, out, err = self.penstock("check-config", path, "--print-effective", "--explain", "--json")
        self.assertEqual(code, EXIT_OK, err)
        answer = json.loads(out)
        self.assertEqual(tomllib.loads(answer["effective"])["dataset"]["samples"], 17)
        self.assertIn("[loader.hang]", answer["explanation"])

    def test_the_schema_and_the_program_reject_the_same_files_except_where_no_schema_can(self):
        decided = 0
        for path in glob.glob(os.path.join(CORPUS, "bad", "*.toml")):
            with open(path, "rb") as file:
                head = file.read(4000).decode("utf-8", "replace")
            try:
                accepted = self.accepts(path)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError):
                continue  # not a TOML document
            decided += 1
            self.assertEqual(accepted, bool(re.search("^# schema: accepts", head, re.M)), path)
        self.assertGreater(decided, 40)

    def test_the_program_and_the_schema_agree_on_files_that_stand_alone(self):
        files = [path for path in glob.glob(os.path.join(CORPUS, "*", "*.toml"))]
        decided = 0
        for path in files:
            with open(path, "rb") as file:
                head = file.read(4000).decode("utf-8", "replace")
            # A schema cannot check environment, overrides, includes and contradictions between keys.
            if re.search("^# (schema: accepts|env|set|strict|override)", head, re.M) or "include" in head or "${" in head:
                continue
            try:
                accepted = self.accepts(path)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError):
                self.assertFalse(self.program_accepts(path), path)
                continue
            decided += 1
            self.assertEqual(accepted, self.program_accepts(path), path)
        self.assertGreater(decided, 30)


if __name__ == "__main__":
    main()
