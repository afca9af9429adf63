"""Reference pages of the command line, from the output of `penstock help --json`."""

import json
import os
import re
import subprocess

# Every versioned format, and where it is described. A format in the sources that is missing here is an error.
SCHEMAS = {
    "penstock.run": ("the report of a run: `run --json`, `--report`; `Session.report()`", "../operating.md"),
    "penstock.status": ("`status --json`", "../json.md#fields-of-status"),
    "penstock.event": ("a line of `events --json`", "../json.md#kinds-of-events"),
    "penstock.deaths": ("`deaths --json`", "../json.md#fields-of-a-death"),
    "penstock.describe": ("`describe --json`", "../operating.md"),
    "penstock.sessions": ("`sessions --json`", "../operating.md#after-the-end"),
    "penstock.wait": ("`wait --json`", "../operating.md#waiting-and-stopping"),
    "penstock.record": ("the first line of the record that a session leaves", "../operating.md#after-the-end"),
    "penstock.dry-run": ("`run --dry-run --json`", "verbs.md#penstock-run"),
    "penstock.order": ("what a verb that changes a session has ordered", "../json.md"),
    "penstock.group-order": ("the same for a group", "../json.md"),
    "penstock.quarantine-list": ("`quarantine list --json`", "../operating.md"),
    "penstock.log": ("a line of `logs --json`", "../operating.md"),
    "penstock.top": ("a line of `top --json`", "../operating.md"),
    "penstock.error": ("what a verb prints when it fails", "../json.md"),
    "penstock.check-config": ("`check-config --json`", "verbs.md#penstock-check-config"),
    "penstock.plan": ("`plan --json`", "verbs.md#penstock-plan"),
    "penstock.replay": ("`replay --json`", "verbs.md#penstock-replay"),
    "penstock.replay-verify": ("`replay --verify --json`", "verbs.md#penstock-replay"),
    "penstock.preview": ("`preview --json`", "verbs.md#penstock-preview"),
    "penstock.bench.upload": ("`bench upload --json`", "verbs.md#penstock-bench"),
    "penstock.bench.transform": ("`bench transform --json`", "verbs.md#penstock-bench"),
    "penstock.metrics": ("`metrics --json`", "../metrics.md#all-sessions-and-those-that-have-ended"),
    "penstock.headroom": ("`headroom --json`", "../json.md#fields-of-the-other-verbs"),
    "penstock.host": ("the end of `host --json`", "verbs.md#penstock-host"),
    "penstock.sample-photos": ("`sample-photos --json`", "verbs.md#penstock-sample-photos"),
    "penstock.secret": ("`secret --json`", "verbs.md#penstock-secret"),
    "penstock.version": ("`version --json`", "verbs.md#penstock-version"),
    "penstock.completion": ("`completion --json`", "verbs.md#penstock-completion"),
    "penstock.help-text": ("`help VERB --json`", "verbs.md#penstock-help"),
    "penstock.group-describe": ("`describe --json` of a group", "../operating.md"),
    "penstock.group": ("the report of `launch`", "../groups.md#how-a-group-ends"),
    "penstock.group-status": ("`status --json` of a group", "../groups.md#watching-and-steering-a-group"),
    "penstock.group-deaths": ("`deaths --json` of a group", "../groups.md#watching-and-steering-a-group"),
    "penstock.why": ("`why --json`", "../json.md#fields-of-why"),
    "penstock.group-why": ("`why --json` of a group", "../json.md#fields-of-why"),
    "penstock.pack": ("`pack --json`; `pack.json` next to the shards", "verbs.md#penstock-pack"),
    "penstock.repack": ("`pack --json` of tar shards", "verbs.md#penstock-pack"),
    "penstock.repacked": ("`pack.json` next to shards made from shards", "verbs.md#penstock-pack"),
    "penstock.map": ("a line of the output of `map`", "../map.md#output"),
    "penstock.map-journal": ("the first line of a journal of `map`", "../map.md#the-journal"),
    "penstock.npy": ("the manifest of `--sink npy`", "../formats.md#--sink-npy---out-folder"),
    "penstock.quarantine": ("a line of a quarantine file", "../formats.md"),
    "penstock.trace": ("what `trace` adds to the trace event format", "../operating.md#first-looks"),
    "penstock.doctor": ("`doctor --json`", "../doctor.md"),
    "penstock.inspect": ("`inspect --json`", "../datasets.md#debugging-it"),
    "penstock.chaos": ("`chaos --json`", "verbs.md#penstock-chaos"),
    "penstock.help": ("`help --json`: the source of the page on verbs", "verbs.md"),
    "penstock.loader": ("`DataLoader.state_dict()` in Python", "../python.md"),
}


def output(penstock, *arguments):
    return subprocess.run([penstock, *arguments], capture_output=True, text=True, check=True).stdout


def page(penstock):
    table = json.loads(output(penstock, "help", "--json"))
    lines = ["# Verbs and exit codes", "", "Every verb of the command `penstock`, with its options and examples.", "",
             "Each verb takes `--json`; an error is then an object, too. `penstock help VERB` prints the same in a terminal.", ""]
    groups = list(dict.fromkeys(verb["group"] for verb in table["verbs"]))
    for group in groups:
        lines += [f"**{group}**: " + ", ".join(f"[{verb['verb']}](#penstock-{verb['verb']})" for verb in table["verbs"] if verb["group"] == group), ""]
    for verb in table["verbs"]:
        lines += of_verb(verb)
    lines += ["## Targets", "", "```", output(penstock, "help", "targets").strip(), "```", "",
              "## Exit codes", "", "| code | meaning |", "| --- | --- |"]
    lines += ["| %s | %s |" % tuple(line.split(None, 1)) for line in output(penstock, "help", "exit-codes").splitlines() if re.match(r"\s+\d", line)]
    return "\n".join(lines) + "\n"


def of_verb(verb):
    lines = [f"## penstock {verb['verb']}", "", f"*{sentence(verb['summary'])}*", "", "```", verb["synopsis"], "```", ""]
    lines += [escaped(verb["text"]), ""]
    if verb["options"]:
        lines += ["| option | meaning |", "| --- | --- |"]
        for option in verb["options"]:
            name = option["names"].replace(",", ", ") + (" " + option["value"] if option["value"] and not option["positional"] else "")
            lines.append(f"| `{name}` | {escaped(option['help'])}{' (required)' if option['required'] and not option['positional'] else ''} |".replace("\n", " "))
        lines.append("")
    if verb["examples"]:
        lines += ["```sh"] + [f"{each['command']}   # {each['what']}" for each in verb["examples"]] + ["```", ""]
    return lines


def sentence(text):
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def escaped(text):
    parts = re.split(r"(`[^`]*`)", text)
    marked = (part if part.startswith("`") else re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", re.sub(r"([*_<|])", r"\\\1", part)) for part in parts)
    return "".join(marked)


def schemas_page(top):
    named = set()
    for folder in ("runtime", "actors", "tools/penstock", "python/penstock"):
        for at, _, files in os.walk(os.path.join(top, folder)):
            for name in files:
                if name.endswith((".cpp", ".hpp", ".py")):
                    with open(os.path.join(at, name), encoding="utf-8") as file:
                        named |= set(re.findall(r"\b(penstock\.[a-z.-]+)/(\d+)\b", file.read()))
    unknown = sorted(name for name, _ in named if name not in SCHEMAS)
    if unknown:
        raise SystemExit("tools/site: tools/docs/verbs.py does not describe these schemas: " + ", ".join(unknown))
    lines = ["# Schemas", "", "Every format that other programs may read, by the name in its field `schema`.", "",
             "A name ends with its version. A version may gain fields; no field changes its meaning or disappears.", "",
             "Config files have a [JSON Schema](schema.json) for editors: `penstock schema` prints it.", "",
             "| schema | what it describes | more |", "| --- | --- | --- |"]
    for name, version in sorted(named):
        what, where = SCHEMAS[name]
        lines.append(f"| `{name}/{version}` | {what} | [description]({where}) |")
    return "\n".join(lines) + "\n"
