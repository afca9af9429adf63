"""Pictures as SVG, from data: terminals, bar charts, curves, timelines. They have a background, so they are readable on light and dark
pages."""

import re
from html import escape

FONT = "system-ui, 'DejaVu Sans', sans-serif"
MONO = "'DejaVu Sans Mono', Menlo, Consolas, monospace"
BLUE, ORANGE, GREY, GREEN, RED = "#1f6f8b", "#d9822b", "#8a949e", "#3c8d5a", "#c0392b"
INK, PAPER, LINE = "#22303c", "#ffffff", "#d7dde2"


class Drawing:
    def __init__(self, width, height, title, background=PAPER):
        self.width, self.height = width, height
        self.parts = [f'<title>{escape(title)}</title>', f'<rect width="{width}" height="{height}" rx="6" fill="{background}"/>']

    def rect(self, x, y, width, height, colour, **more):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{max(width, 0):g}" height="{height:g}" fill="{colour}"{attributes(more)}/>')

    def line(self, x1, y1, x2, y2, colour=LINE, **more):
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}"{attributes(more)}/>')

    def text(self, x, y, text, size=13, colour=INK, anchor="start", **more):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{attributes(more)}>{escape(text)}</text>')

    def curve(self, points, colour, **more):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"{attributes(more)}/>')

    def __str__(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" '
                f'height="{self.height:g}" font-family="{FONT}">\n' + "\n".join(self.parts) + "\n</svg>\n")


def attributes(more):
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())


def number(value):
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


# ---- charts ----------------------------------------------------------------------------------------------------------

def bars(title, unit, rows, note=""):
    """Horizontal bars. rows: (label, value, colour)."""
    left, right, step = 250, 110, 30
    width, height = 760, 64 + step * len(rows) + (24 if note else 0)
    drawing = Drawing(width, height, title)
    drawing.text(16, 28, title, 16, font_weight="600")
    drawing.text(width - 16, 28, unit, 12, GREY, "end")
    most = max(value for _, value, _ in rows)
    for i, (label, value, colour) in enumerate(rows):
        y = 48 + i * step
        length = (width - left - right) * value / most
        drawing.text(left - 10, y + 15, label, 13, anchor="end")
        drawing.rect(left, y, max(length, 1), 20, colour, rx=2)
        drawing.text(left + max(length, 1) + 8, y + 15, number(value), 13)
    if note:
        drawing.text(16, height - 12, note, 11, GREY)
    return str(drawing)


def curves(title, note, unit, series, seconds, mark=None):
    """Rates over time. series: (label, colour, [(second, value)], the text at its end); mark: (second, text)."""
    width, height, left, right, top, bottom = 860, 420, 64, 250, 60, 62
    drawing = Drawing(width, height, title)
    drawing.text(16, 30, title, 17, font_weight="600")
    most = 1.12 * max(value for _, _, points, _ in series for _, value in points)
    step = next(s for s in (50, 100, 200, 250, 500, 1000, 2000, 5000) if most / s <= 6)
    across = lambda second: left + (width - left - right) * second / seconds
    up = lambda value: height - bottom - (height - top - bottom) * value / most
    for tick in range(0, int(most) + 1, step):
        drawing.line(left, up(tick), width - right, up(tick))
        drawing.text(left - 8, up(tick) + 4, number(tick) if tick else "0", 12, GREY, "end")
    for second in range(0, int(seconds) + 1, 2):
        drawing.text(across(second), height - bottom + 18, f"{second} s", 12, GREY, "middle")
    drawing.text(left, top - 10, unit, 12, GREY)
    if mark:
        drawing.line(across(mark[0]), top, across(mark[0]), height - bottom, RED, stroke_dasharray="4 4", stroke_width=1.5)
        drawing.text(across(mark[0]) + 6, top + 12, mark[1], 12, RED)
    labels = []
    for label, colour, points, end in series:
        drawing.curve([(across(second), up(value)) for second, value in points], colour)
        x, y = across(points[-1][0]), up(points[-1][1])
        if end:
            drawing.text(x - 5, y + 5, "✕", 16, RED)
            drawing.text(x + 14, y + 20, end, 12, RED)
        labels.append((y, label, colour))
    last = -100
    for y, label, colour in sorted(labels):
        last = max(y + 4, last + 20)  # so that no label covers another
        drawing.text(width - right + 10, last, label, 13, colour, font_weight="600")
    drawing.text(16, height - 14, note, 11, GREY)
    return str(drawing)


def timeline(title, note, rows, seconds):
    """Spans over time. rows: (label, [(from, to, colour, text)])."""
    left, step, width = 120, 30, 900
    height = 70 + step * len(rows) + 30
    drawing = Drawing(width, height, title)
    drawing.text(16, 28, title, 16, font_weight="600")
    across = lambda second: left + (width - left - 20) * second / seconds
    for i, (label, spans) in enumerate(rows):
        y = 44 + i * step
        drawing.text(left - 10, y + 16, label, 12, anchor="end")
        drawing.line(left, y + 26, width - 20, y + 26)
        for begin, end, colour, text in spans:
            drawing.rect(across(begin), y + 3, max(across(end) - across(begin) - 0.6, 0.8), 20, colour, rx=2)
            if text and across(end) - across(begin) > 7.2 * len(text):
                drawing.text((across(begin) + across(end)) / 2, y + 17, text, 11, "#ffffff", "middle")
    for tick in range(5):
        drawing.text(across(seconds * tick / 4), 44 + step * len(rows) + 16, f"{1000 * seconds * tick / 4:.0f} ms", 11, GREY, "middle")
    drawing.text(16, height - 10, note, 11, GREY)
    return str(drawing)


# ---- terminals -------------------------------------------------------------------------------------------------------

COLOURS = ["#2b3640", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#dcdfe4",
           "#7a8591", "#ff7b86", "#b5e890", "#ffd98a", "#8cc8ff", "#e29bf0", "#7fd8e2", "#ffffff"]
SGR = re.compile(r"\x1b\[([0-9;]*)m")
OTHER_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-ln-z]|\([A-Z]|[=>])|\r")


def terminal(text, title):
    """A terminal window that shows `text`, whose colours are escape sequences. `title`: the window's title."""
    lines = [spans_of(line) for line in OTHER_ESCAPES.sub("", text).rstrip("\n").split("\n")]
    columns = max([sum(len(part) for part, _ in line) for line in lines] + [len(title) + 12, 60])
    wide, high = 8.4, 18
    drawing = Drawing(columns * wide + 32, len(lines) * high + 56, title, "#1b232b")
    for i, colour in enumerate(("#e06c75", "#e5c07b", "#98c379")):
        drawing.parts.append(f'<circle cx="{20 + 16 * i}" cy="18" r="5" fill="{colour}"/>')
    drawing.text(drawing.width / 2, 22, title, 12, "#9aa5b1", "middle")
    for row, line in enumerate(lines):
        column, y = 0, 52 + row * high
        for part, style in line:
            x, length = 16 + column * wide, len(part) * wide
            if style.get("background"):
                drawing.rect(x, y - 13, length, high, style["background"])
            if part.strip():
                more = {"font_family": MONO, "xml:space": "preserve", "textLength": f"{length:g}", "lengthAdjust": "spacingAndGlyphs"}
                if style.get("bold"):
                    more["font_weight"] = "bold"
                drawing.text(x, y, part, 14, style.get("colour", "#dcdfe4"), **more)
            column += len(part)
    return str(drawing)


def spans_of(line):
    """[(text, style)] of a line. A style lasts from its escape sequence to the next one."""
    parts, style, position = [], {}, 0
    for match in SGR.finditer(line):
        if match.start() > position:
            parts.append((line[position:match.start()], style))
        style = styled(style, [int(code or 0) for code in match[1].split(";")])
        position = match.end()
    return parts + ([(line[position:], style)] if position < len(line) else [])


def styled(style, codes):
    style = dict(style)
    i = 0
    while i < len(codes):
        code = codes[i]
        if code == 0:
            style = {}
        elif code == 1:
            style["bold"] = True
        elif code == 2:
            style["colour"] = COLOURS[8]
        elif code == 7:
            style = {**style, "background": style.get("colour", "#dcdfe4"), "colour": "#1b232b"}
        elif code == 22:
            style.pop("bold", None)
        elif code == 39:
            style.pop("colour", None)
        elif code == 49:
            style.pop("background", None)
        elif code in (38, 48) and codes[i + 1:i + 2] == [5]:
            style["colour" if code == 38 else "background"] = indexed(codes[i + 2])
            i += 2
        else:
            for first, bright, key in ((30, 0, "colour"), (40, 0, "background"), (90, 8, "colour"), (100, 8, "background")):
                if first <= code < first + 8:
                    style[key] = COLOURS[code - first + bright]
        i += 1
    return style


def indexed(number):
    if number < 16:
        return COLOURS[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    levels = [0, 95, 135, 175, 215, 255]
    number -= 16
    return "#" + "".join(f"{levels[(number // part) % 6]:02x}" for part in (36, 6, 1))
