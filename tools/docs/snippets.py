"""Checks the code in the pages: verbs and options of `penstock`, keys of config files, the syntax of Python."""

import ast
import json
import os
import re
import subprocess
import tempfile

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)


class Checker:
    """Asks the program itself for its verbs and about config files."""

    def __init__(self, penstock):
        self._penstock = penstock
        verbs = json.loads(subprocess.run([penstock, "help", "--json"], capture_output=True, text=True, check=True).stdout)["verbs"]
        self._options = {verb["verb"]: {name for option in verb["options"] for name in option["names"].split(",")} for verb in verbs}

    def faults_of(self, text):
        """(line, fault) for each fault of a page."""
        found = []
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 2
            language, code = match[1], match[2]
            if language in ("", "sh", "bash"):
                found += [(line + at, fault) for at, command in enumerate(code.split("\n")) for fault in self._command_faults(command)]
            elif language == "python":
                found += [(line, fault) for fault in python_faults(code)]
            elif language == "toml":
                found += [(line, fault) for fault in self._config_faults(code)]
        prose = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
        for match in re.finditer(r"`(penstock [^`]+)`", prose):
            line = prose.count("\n", 0, match.start()) + 1
            found += [(line, fault) for fault in self._command_faults(" ".join(match[1].split()))]
        return [f"line {line}: {fault}" for line, fault in found]

    def _command_faults(self, line):
        line = re.sub(r"'[^']*'|\"[^\"]*\"", "WORD", re.sub(r"(^|\s)#.*", "", line))
        faults = []
        for command in re.split(r"[;&|]+", line):
            words = command.split()
            while words and re.match(r"[A-Z_]+=|srun$|exec$|source$", words[0]):
                words.pop(0)
            if len(words) < 2 or words[0] != "penstock" or not re.fullmatch(r"[a-z-]+", words[1]):
                continue
            verb, arguments = words[1], words[2:]
            if verb not in self._options:
                faults.append(f"there is no verb `penstock {verb}`")
                continue
            if "--" in arguments:
                arguments = arguments[:arguments.index("--")]
            options = [word.partition("=")[0] for word in arguments if re.match(r"--?[a-z0]", word)]
            faults += [f"`penstock {verb}` has no option {option}" for option in options if option not in self._options[verb]]
        return faults

    def _config_faults(self, code):
        """A block may be only part of a file, so only unknown keys and invalid values are faults."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "block.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(re.sub(r"^include = .*", "", code, flags=re.M))
            done = subprocess.run([self._penstock, "check-config", path], capture_output=True, text=True)
        said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
        return [error for error in re.findall(r"^error: (.*)$", said, re.M) if " is missing: " not in error]


def python_faults(code):
    try:
        ast.parse(code)
    except SyntaxError as error:
        return [f"not Python, from line {error.lineno} of the block"]
    return []
