"""The reference page of the Python package, from its docstrings and signatures. Reads the sources; imports nothing."""

import inspect
import re

import griffe

MODULES = ("penstock", "penstock.torch", "penstock.joblib", "penstock.ray", "penstock.worker")
SPECIAL = {"__init__", "__enter__", "__exit__", "__iter__", "__next__", "__len__", "__getitem__", "__dlpack__", "__reduce__"}


def page(folder):
    package = griffe.load("penstock", search_paths=[folder], submodules=True, docstring_parser="google")
    lines = ["# Python API", "", "Every public name of the package, with its signature and documentation.", "",
             "[Python in depth](../python.md) is the guide.", ""]
    for name in MODULES:
        module = package if name == "penstock" else package[name.partition(".")[2]]
        lines += [f"## {name}", ""]
        if module.docstring:
            lines += [text_of(module.docstring.value), ""]
        for public in public_names(module):
            member = module.members.get(public)
            if member is not None:
                lines += documented(name, public, member)
    return "\n".join(lines) + "\n"


def public_names(module):
    if module.exports is None:
        return sorted(name for name, member in module.members.items() if not name.startswith("_") and not member.is_alias and not member.is_module)
    names = [str(name) if isinstance(name, str) else None for name in module.exports]
    errors = module.members.get("_errors")
    if None in names and errors is not None:  # *_errors.__all__
        names += [str(name) for name in errors.exports or []]
    return list(dict.fromkeys(name for name in names if name))


def documented(module, name, member):
    target = member.final_target if member.is_alias else member
    lines = [f"### {module}.{name}", ""]
    if target.is_class:
        bases = ", ".join(str(base) for base in target.bases)
        lines += ["```python", f"class {name}" + (f"({bases})" if bases else ""), "```", ""]
        lines += docstring(target)
        constructor = target.members.get("__init__") or (target.inherited_members.get("__init__") and target.inherited_members["__init__"].final_target)
        if constructor is not None and constructor.is_function and "_core." not in signature(name, constructor):  # else only the package makes these
            lines += ["```python", signature(name, constructor), "```", ""]
        # Public classes inherit from private ones of the package.
        inherited = {inner_name: inner.final_target for inner_name, inner in target.inherited_members.items()
                     if is_private(inner.final_target)}
        for inner_name, inner in {**target.members, **inherited}.items():
            if inner_name == "__init__" or inner.is_alias or inner_name.startswith("_") and inner_name not in SPECIAL:
                continue
            lines += of_class(inner_name, inner)
        return lines
    if target.is_function:
        lines += ["```python", signature(name, target), "```", ""]
    elif target.is_attribute:
        lines += ["```python", f"{name}" + (f": {target.annotation}" if target.annotation else ""), "```", ""]
    return lines + docstring(target)


def is_private(member):
    return any(part.startswith("_") for part in member.path.split(".")[:-2])


def of_class(name, member):
    if not member.docstring and name.startswith("__"):
        return []
    if member.is_function:
        code = signature(name, member)
    elif member.is_attribute:
        code = name + (f": {member.annotation}" if member.annotation else "")
    else:
        return []
    return ["```python", code, "```", ""] + docstring(member)


def signature(name, function):
    parameters, star = [], False
    for parameter in function.parameters:
        if parameter.name == "self":
            continue
        kind = parameter.kind.value if parameter.kind else ""
        if kind == "keyword-only" and not star:
            parameters.append("*")
            star = True
        text = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "") + parameter.name
        star = star or kind == "variadic positional"
        if parameter.annotation:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not kind.startswith("variadic"):
            text += f" = {parameter.default}" if parameter.annotation else f"={parameter.default}"
        parameters.append(text)
    head, tail = f"{name}(", ")" + (f" -> {function.returns}" if function.returns else "")
    line = head + ", ".join(parameters) + tail
    return line if len(line) <= 100 else head + "\n    " + ",\n    ".join(parameters) + ",\n" + tail


def docstring(target):
    if not target.docstring:
        return []
    lines = []
    for section in target.docstring.parse("google"):
        kind = section.kind.value
        if kind == "text":
            lines += [text_of(section.value), ""]
        elif kind in ("parameters", "other parameters", "attributes"):
            lines += ["| argument | meaning |", "| --- | --- |"]
            lines += [f"| `{each.name}` | {cell(each.description)} |" for each in section.value] + [""]
        elif kind == "raises":
            lines += ["| raises | when |", "| --- | --- |"]
            lines += [f"| `{each.annotation}` | {cell(each.description)} |" for each in section.value] + [""]
        elif kind in ("returns", "yields"):
            lines += [f"{kind.capitalize()}: {cell(' '.join(each.description for each in section.value))}", ""]
        elif kind == "admonition":
            lines += [f"**{section.title}**: {cell(section.value.description)}", ""]
        else:
            lines += [str(section.value), ""]
    return lines


def cell(text):
    return with_dunders(re.sub(r"\s+", " ", text or "").replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").strip())


def with_dunders(text):
    """Escapes names like __main__ outside of `code`, where Markdown would print them in bold and without their
    underscores."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"__(\w+?)__", r"\\_\\_\1\\_\\_", part) for part in parts)


def text_of(value):
    """A docstring as Markdown. Indented lines, and tables of names and meanings, become code blocks."""
    lines, inside, blank = [], False, True
    for line in inspect.cleandoc(value).split("\n"):
        code = line.startswith("    ") or bool(re.match(r"\S.*\S {3,}\S", line)) or inside and line.startswith(" ")
        if code != inside and (code or line.strip()):
            if inside and blank:
                lines.pop()
            lines += ([] if blank or inside else [""]) + (["```python"] if code else ["```", ""])
            inside = code
        lines.append(line[4:] if inside and line.startswith("    ") else line if inside else with_dunders(line.replace("<", "&lt;")))
        blank = not line.strip()
    if inside:
        lines.append("```")
    return "\n".join(lines)
