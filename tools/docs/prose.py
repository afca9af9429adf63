"""Checks the wording of the pages: a purpose line, the length of sentences, words that a native engineer would not use.

proselint's checks for clichés, redundancy and spelling run as well where proselint is installed.
"""

import os
import re
import subprocess
import sys
import tempfile

LONGEST = 30  # words in a sentence
PURPOSE = 30  # words in a page's purpose line

# (pattern, what to write instead). A page about a format or an error message may quote them in code, which is not
# checked.
WORDS = [
    (r"\bwhat it has of\b", "say what it has"),
    (r"\bso many\b", "the number, or 'that many'"),
    (r"\bis told\b|\bare told\b", "the actor as subject: 'the session tells ...'"),
    (r"\bgo(es)? on\b(?! (top|a|the)\b)|\bwent on\b", "continue"),
    (r"\banew\b", "again"),
    (r"\blet(s)? go of\b", "release, free"),
    (r"\bnobody\b", "no one, or name the actor: 'no process'"),
    (r"\bverdicts?\b|\btrial\b|\bjudges?\b|\bcourt\b|\bcondemn\w*\b|\bsentenced\b", "no courtroom: result, reason, decide"),
    (r"\bstrangers?\b", "unauthenticated peer, someone else"),
    (r"\brivals?\b", "competitor"),
    (r"\bforg[ai]ve\w*\b", "tolerate, reset"),
    (r"\bobeys?\b|\bobeyed\b", "follow"),
    (r"\bseats?\b", "place"),
    (r"\bfor ever\b", "forever"),
    (r"\bthe guilty\b", "name what failed"),
    (r"\bhas not ended right\b|\bended right\b", "ended without an error"),
    (r"\bbegin(s)? as last\b|\bin the end\b", "finally, at the end"),
    (r"\bto make sure of it\b", "to check"),
    (r"\bsimply\b|\bobviously\b|\bof course\b|\bjust works\b", "leave it out"),
    (r"\bpasst\b|\beventuel\w*\b", "a word of another language"),
]

# proselint's checks that do not fit text with code: it sees repeated words in tables, and wants typographic quotes.
NOT_OURS = ("annotations", "dates_times", "industrial_language", "lexical_illusions", "psychology", "social_awareness", "terms", "typography")

# Lists of figures: there, a semicolon or a colon ends a sentence.
LAB_NOTES = ("benchmarks.md",)

# Third-party text shown verbatim, and pages that are generated or written once.
EXEMPT = ("decisions/", "source/", "config.md", "doctor.md", "reference/")


def check_pages(stage, pages):
    """Returns one line for each fault of the pages. `pages`: paths relative to `stage`."""
    faults = []
    for page in pages:
        with open(os.path.join(stage, page), encoding="utf-8") as file:
            text = file.read()
        found = purpose_faults(text) if page.startswith(EXEMPT) else faults_of(text, page in LAB_NOTES)
        faults += [f"docs/{page}: {fault}" for fault in found]
    return faults + proselint(stage, pages)


def faults_of(text, figures=False):
    faults = purpose_faults(text)
    for number, block in blocks(text):
        for sentence in sentences(block, figures):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > LONGEST:
                faults.append(f"line {number}: {len(words)} words in one sentence: {sentence[:90]}...")
        for pattern, instead in WORDS:
            for match in re.finditer(pattern, block, re.I):
                around = block[max(match.start() - 25, 0):match.end() + 25]
                faults.append(f"line {number}: '{match[0]}' ({instead}): ...{around}...")
    return faults


def purpose_faults(text):
    """A page begins with its title, and then one line that says what it is for."""
    lines = re.sub(r"^<!--.*-->\n", "", text).split("\n")
    if not lines or not lines[0].startswith("# "):
        return ["line 1: a page begins with its title"]
    if len(lines) < 4 or lines[1] or not lines[2] or lines[3]:
        return ["line 3: after the title comes one line that says what the page is for, then an empty line"]
    if len(lines[2].split()) > PURPOSE or not lines[2].endswith("."):
        return [f"line 3: the purpose is one sentence of at most {PURPOSE} words"]
    return []


def blocks(text):
    """(line, text) of each paragraph, item and cell, without code and the marks of links."""
    found, current, first, code = [], [], 0, False
    for number, line in enumerate(text.split("\n") + [""], 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            code = not code
            stripped = ""
        item = re.match(r"(?:[-*]|\d+\.) +", stripped)
        if current and (not stripped or item or code or stripped.startswith(("|", "#", "<"))):
            found.append((first, plain(" ".join(current))))
            current = []
        if code or not stripped or stripped.startswith(("#", "<", "![")):
            continue
        if stripped.startswith("|"):
            if not re.fullmatch(r"[|\s:-]+", stripped):
                found += [(number, plain(cell.strip())) for cell in re.split(r"(?<!\\)\|", stripped.strip("|"))]
            continue
        if not current:
            first = number
        current.append(stripped[item.end():] if item else stripped)
    return found


def plain(text):
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    return re.sub(r"[*_]{1,2}(?=\S)|(?<=\S)[*_]{1,2}", "", text)


def sentences(block, figures):
    return re.split(r"(?<=[.!?;:])[\s)]+" if figures else r"(?<=[.!?])[\s)]+(?=[\"'(A-Za-z0-9\[])", block)


def proselint(stage, pages):
    """What proselint finds in the pages, as faults; empty if it is not installed."""
    program = os.path.join(os.path.dirname(sys.executable), "proselint")
    if not os.access(program, os.X_OK):
        return []
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        names = {}
        for page in pages:
            if page.startswith(EXEMPT):
                continue
            with open(os.path.join(stage, page), encoding="utf-8") as file:
                text = "\n".join(f"{line}\x00{block}" for line, block in blocks(file.read()))
            name = os.path.join(folder, page.replace("/", "_"))
            names[os.path.basename(name)] = page, [int(line.partition("\x00")[0]) for line in text.split("\n") if line]
            with open(name, "w", encoding="utf-8") as file:
                file.write("\n".join(line.partition("\x00")[2] for line in text.split("\n")))
        done = subprocess.run([program, "check", *(os.path.join(folder, name) for name in names)], capture_output=True, text=True)
    for line in (done.stdout + done.stderr).splitlines():
        match = re.match(r"(?:.*/)?([^/:]+):(\d+):\d+: ([\w.]+): (.*)", line)
        if match and match[1] in names and not match[3].startswith(NOT_OURS):
            page, lines = names[match[1]]
            faults.append(f"docs/{page}: line {lines[int(match[2]) - 1]}: {match[4]} (proselint {match[3]})")
    return faults
