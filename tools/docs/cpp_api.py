"""Reference pages of the C++ API, one for each public header: its first lines, its declarations and their `///` comments. Parses only as
much C++ as the headers use."""

import glob
import os
import re

LEFT_OUT = {"export.hpp"}
BEGINS_A_BODY = re.compile(r"^(template\s*<.*>\s*)?(class|struct|union|enum|namespace|extern)\b", re.S)
NOISE = re.compile(r"\bPENSTOCK_API\s+|\[\[nodiscard\]\]\s*|\[\[noreturn\]\]\s*|\binline\s+")


def pages(folder):
    """(name, text) of each page."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "*.hpp"))):
        name = os.path.basename(path)
        if name not in LEFT_OUT:
            with open(path, encoding="utf-8") as file:
                found.append((name[:-4] + ".md", page(name, file.read())))
    return found


def page(name, source):
    intro, rest = introduction(source)
    lines = [f"# &lt;penstock/{name}&gt;", "", "The declarations of this header, with their comments.", ""]
    lines += [prose(intro), "", "```cpp", f"#include <penstock/{name}>", "```", ""]
    for item in items(rest):
        lines += rendered(item)
    return "\n".join(lines) + "\n"


def introduction(source):
    lines = source.split("\n")
    last = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    return [line[2:].rstrip() for line in lines[:last]], "\n".join(lines[last:])


# ---- reading ---------------------------------------------------------------------------------------------------------

class Item:
    """A declaration: its text without a body, its comment, and the members of a class or namespace."""

    def __init__(self, head, comment, body=None):
        self.head, self.comment, self.body = head, comment, body


def items(source):
    """The documented declarations of a header or of a class's body, in order, without private members and details."""
    source = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", source, flags=re.M)
    found, comment, text, position, shown = [], [], "", 0, True
    while position < len(source):
        if source.startswith("//", position):
            end = source.find("\n", position)
            end = len(source) if end < 0 else end
            line = source[position:end]
            if line.startswith("///<") and found:
                found[-1].comment.append(line[4:])
            elif line.startswith("///"):
                comment.append(line[3:])
            position = end
            continue
        here = source[position]
        if here in "([{" and not (here == "{" and not is_initialiser(text, source, position)):
            end = closing(source, position)
            text += source[position:end]
            position = end
            continue
        if here == "{":
            end = closing(source, position)
            if shown:
                take(found, text, comment, source[position + 1:end - 1])
            comment, text, position = [], "", end
            if BEGINS_A_BODY.match(found[-1].head if found else ""):
                while position < len(source) and source[position] in " ;":
                    position += 1
            continue
        if here == ";":
            if shown:
                take(found, text, comment, None)
            comment, text = [], ""
        elif here == ":" and text.strip() in ("public", "private", "protected"):
            shown, text = text.strip() == "public", ""
        elif here == "\n" and not text.strip() and source.startswith("\n\n", position):
            comment = []
        else:
            text += here
        position += 1
    return found


def take(found, text, comment, body):
    head = re.sub(r"\s+", " ", NOISE.sub("", text)).strip()
    if not head or head.startswith(("friend ", "using namespace", "static_assert")):
        return
    if re.match(r"namespace\b", head):
        if body is not None and re.fullmatch(r"namespace penstock(::cuda)?", head):  # other namespaces are not for users
            found += items(body)
        return
    if head.startswith('extern "C"') and body is not None and "(" not in head:
        found += items(body)
        return
    if body is None and BEGINS_A_BODY.match(head) and not comment:
        return  # a forward declaration
    found.append(Item(head, list(comment), body))


def is_initialiser(text, source, position):
    """Whether the brace begins a value (`int x{};`, `= {...};`), not a body."""
    text = text.strip()
    if BEGINS_A_BODY.match(NOISE.sub("", text)):
        return False
    after = source[closing(source, position):].lstrip()
    return after.startswith((";", ",")) and not text.endswith((")", "const", "noexcept", "override"))


def closing(source, position):
    """The position after the bracket that closes the one at `position`."""
    depth = 0
    while position < len(source):
        if source.startswith("//", position):
            position = source.find("\n", position)
            continue
        here = source[position]
        if here in "\"'" and not (here == "'" and source[position - 1].isdigit()):
            position += 1
            while source[position] != here:
                position += 2 if source[position] == "\\" else 1
        depth += (here in "([{") - (here in ")]}")
        position += 1
        if depth == 0:
            return position
    return len(source)


# ---- writing ---------------------------------------------------------------------------------------------------------

def rendered(item):
    kind = re.match(r"(?:template\s*<.*?>\s*)?(class|struct|enum class|enum|union)\s+(?:\[\[.*?\]\]\s*)?([\w:]+)", item.head)
    if not kind:
        return documented(item, "")
    lines = [f"## {kind[1]} {kind[2]}", ""]
    if item.comment:
        lines += [prose(item.comment), ""]
    if item.body is None:
        return lines
    if kind[1] != "class":
        return lines + ["```cpp", item.head + " {", tidy(item.body), "};", "```", ""]
    head = re.sub(r"^template\s*<.*?>\s*", "", item.head)
    if ":" in head.replace("::", ""):
        lines += [f"`{head}`", ""]
    for member in items("private:" + item.body):
        lines += documented(member, kind[2])
    return lines


def documented(item, owner):
    head = item.head
    if item.body is not None:
        head = re.sub(r"\)\s*(const\s*)?(noexcept\s*)?:\s.*$", r") \1\2", head).rstrip()  # a constructor's initialisers
    if item.body is not None and BEGINS_A_BODY.match(head):
        return ["```cpp", head + " {", tidy(item.body), "};", "```", "", prose(item.comment), ""]
    lines = ["```cpp", wrapped(head) + ";", "```", ""]
    return lines + ([prose(item.comment), ""] if item.comment else [])


def tidy(body):
    """A struct's body, unchanged except for its indentation."""
    body = re.split(r"^\s*(?:private|protected):", body, flags=re.M)[0].strip("\n").rstrip()
    return "\n".join("  " + line.strip() if line.strip() and not line.startswith("    ") else line for line in body.split("\n"))


def wrapped(head, width=100):
    if len(head) <= width or "(" not in head:
        return head
    begin = head.index("(")
    parts, depth, part = [], 0, ""
    for here in head[begin + 1:]:
        depth += (here in "(<[{") - (here in ")>]}")
        part += here
        if here == "," and depth == 0:
            parts.append(part.strip())
            part = ""
    return head[:begin + 1] + "\n    " + "\n    ".join(parts + [part.strip()])


def prose(lines):
    """Comment lines as Markdown: lines that are indented are code."""
    text, inside = [], False
    for line in lines:
        line = line[1:] if line.startswith(" ") else line
        code = line.startswith("  ")
        if code != inside:
            text.append("```cpp" if code else "```")
            inside = code
        text.append(line if code else re.sub(r"<(?=[a-z/])", "&lt;", line))
    if inside:
        text.append("```")
    return re.sub(r"(?<=[^\n])\n```cpp", "\n\n```cpp", "\n".join(text))
