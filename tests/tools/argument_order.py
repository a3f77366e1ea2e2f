#!/usr/bin/env python3
"""Finds expressions whose meaning depends on the order in which a compiler evaluates them.

C leaves open in which order the arguments of a call, the operands of most operators and the values of a braced list
are evaluated. Where two of them change the same object (a builder that appends instructions), builds by gcc and by
clang give two programs. A finding is a pair of calls in unordered places of one expression, each of which is given
the same object through a pointer that it may write through. The signatures come from the headers of the project and
from the file itself. Functions of the system, macros and calls through pointers count as changing nothing; two names
of one object count as two objects.

tests/tools/test_tidy.py refuses every finding outside tests/."""
import re

# These read a row, which only a step of the statement changes.
READS = {"sx_store_column_span", "sx_store_column_u64"}
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "case", "do", "else", "goto", "_Static_assert"}
TOKEN = re.compile(r"[A-Za-z_]\w*|0[xX][0-9A-Fa-f.pP+\-]*\w*|\d[\w.]*|->|\+\+|--|&&|\|\||<<=?|>>=?|[-+*/%&|^=!<>]=|"
                   r"[^\s\w]")
# name(parameters) followed by ; or {, with a type before the name
SIGNATURE = re.compile(r"^(?:[A-Za-z_(][^\n;{}=]*?[\s*)])?(\w+)\(([^;{}]*?)\)\s*[;{]", re.M)


def blank(code):
    """Without comments, strings and preprocessor lines; lines stay lines."""
    def white(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    code = re.sub(r"/\*.*?\*/|//[^\n]*", white, code, flags=re.S)
    code = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', lambda m: "0" + " " * (len(m.group(0)) - 1), code)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", white, code, flags=re.M)


def parameters(text):
    """The positions of parameters through which a function may write."""
    written, depth, start, parts = [], 0, 0, []
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    for k, part in enumerate(parts):
        if ("*" in part or "[" in part) and not re.search(r"\bconst\b[^*]*[*\[]", part):
            written.append(k)
    return written


def signatures(code, table):
    for match in SIGNATURE.finditer(code):
        name, text = match.groups()
        if name in KEYWORDS or not re.search(r"\w\s+\*?\w|^void$", text):
            continue
        table[name] = parameters(text)


OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
HEADS = {"if", "for", "while", "switch"}
ORDERED = {"&&", "||", "?", ":", ";", "return", "else", "do", "case", "goto", "default"}


def tree(tokens, at=0, close=None):
    """Tokens as a nested list: (text, line) or [bracket, items, line]."""
    items = []
    while at < len(tokens):
        text, line = tokens[at]
        if text in OPEN:
            inner, at = tree(tokens, at + 1, OPEN[text])
            items.append([text, inner, line])
        elif text in CLOSE:
            return items, at + 1
        else:
            items.append((text, line))
            at += 1
    return items, at


def split(items, separators):
    parts, part = [], []
    for item in items:
        if isinstance(item, tuple) and item[0] in separators:
            parts.append(part)
            part = []
        else:
            part.append(item)
    parts.append(part)
    return parts


def object_of(items):
    """The object that an argument names, as text: b, &out, s->builder; None for anything that is computed."""
    text = "".join(item[0] if isinstance(item, tuple) else "(" for item in items)
    return text.lstrip("&") if re.fullmatch(r"&?[A-Za-z_][\w.>-]*", text) and text != "NULL" else None


class Finder:
    """Walks the expressions of one file, whose functions `table` describes."""

    def __init__(self, table, path):
        self.table, self.path, self.findings = table, path, []

    def unordered(self, sets):
        """Reports what two of the sets have in common; their union."""
        union = {}
        for one in sets:
            for name, (call, line) in one.items():
                if name in union and union[name][1] > 0:
                    self.findings.append((self.path, line, f"{union[name][0]} and {call} both change {name} in one "
                                                           "expression: the compiler chooses the order"))
                    union[name] = (call, -1)
                elif name not in union:
                    union[name] = (call, line)
        return {name: (call, abs(line)) for name, (call, line) in union.items()}

    def call(self, name, group):
        arguments = split(group[1], {","})
        effects = self.unordered([self.expression(argument) for argument in arguments])
        for k in self.table.get(name, ()):
            what = object_of(arguments[k]) if k < len(arguments) else None
            if what and name not in READS:
                effects.setdefault(what, (name, group[2]))
        return effects

    def expression(self, items):
        """The objects that an expression changes; what its unordered parts have in common is reported."""
        union = {}
        for part in split(items, ORDERED):
            for name, value in self.operands(part).items():
                union.setdefault(name, value)
        return union

    def operands(self, items):
        sets, before = [], None
        for item in items:
            if isinstance(item, tuple):
                before = item[0]
                continue
            bracket = item[0]
            if bracket == "(" and before in HEADS:
                for part in split(item[1], {","}):
                    self.expression(part)
                self.unordered(sets)
                sets = []
            elif bracket == "(" and before and re.match(r"[A-Za-z_]", before) and before not in KEYWORDS:
                sets.append(self.call(before, item))
            elif bracket == "(" and before == "sizeof":
                pass
            elif bracket == "{" and before == "block":
                self.block(item[1])
                self.unordered(sets)
                sets = []
            else:
                sets.append(self.unordered([self.expression(part) for part in split(item[1], {","})]))
            before = None
        return self.unordered(sets)

    def block(self, items):
        marked, control = [], False
        for k, item in enumerate(items):
            if isinstance(item, list) and item[0] == "{":
                last = items[k - 1] if k else (";", 0)
                named = k > 1 and isinstance(items[k - 2], tuple) and re.match(r"[A-Za-z_]", items[k - 2][0])
                if isinstance(last, tuple):
                    control = last[0] in {";", "else", "do", ":"}
                else:
                    control = last[0] == "{" or (last[0] == "(" and bool(named))
                if control:
                    marked += [(";", item[2]), ("block", item[2]), item, (";", item[2])]
                    continue
            marked.append(item)
        for statement in split(marked, {","}):
            self.expression(statement)


def find(codes):
    """(path, line, text) for each finding; codes: path -> text of C."""
    shared, found = {}, []
    blanks = {path: blank(code) for path, code in codes.items()}
    for path, code in blanks.items():
        if path.endswith(".h"):
            signatures(code, shared)
    for path, code in blanks.items():
        table = dict(shared)
        signatures(code, table)
        finder = Finder(table, path)
        lines = code.split("\n")
        start = None
        for number, line in enumerate(lines):
            if line == "{":
                start = number
            elif line == "}" and start is not None:
                tokens = [(m.group(0), start + 2 + k) for k, text in enumerate(lines[start + 1:number])
                          for m in TOKEN.finditer(text)]
                finder.block(tree(tokens)[0])
                start = None
        found += finder.findings
    return found


PLANTED = (
    ("    return two(b, one(b, 1), one(b, 2));", 1),
    ("    int x = one(b, 1) + one(b, 2);", 1),
    ("    int x[] = {one(b, 1), one(b, 2)};", 1),
    ("    thing t = {.x = one(b, 1), .y = one(b, 2)};", 1),
    ("    use((const int[]){one(b, 1), one(b, 2)});", 1),
    ("    *at(b, 1) = one(b, 2);", 1),
    ("    return two(&s->b, one(&s->b, 1), 2 * one(&s->b, 2));", 1),
    ("    return two(b, one(b, 1) + 1, x ? one(b, 2) : 3);", 1),
    ("    if (two(b, one(b, 1), one(b, 2))) {\n        stop();\n    }", 1),
    ("    for (int i = 0; i < 3; i++) {\n        two(b, one(b, 1), one(b, 2));\n    }", 1),
    ("    if (x) {\n        two(b, one(b, 1), 0);\n    } else {\n        two(b, 0, one(b, 2));\n    }", 0),
    ("    return two(b, one(b, 1), 2);", 0),
    ("    int x = one(b, 1), y = one(b, 2);", 0),
    ("    return one(b, 1) && one(b, 2);", 0),
    ("    return x ? one(b, 1) : one(b, 2);", 0),
    ("    return two(b, look(b), one(b, 2));", 0),
    ("    return two(b, one(b, 1), one(c, 2));", 0),
    ("    int x = one(b, 1);\n    return two(b, x, one(b, 2));", 0),
    ("    switch (x) {\n    case 0: one(b, 1); break;\n    default: one(b, 2);\n    }", 0),
)


def planted():
    """What the check must find, and what it must pass."""
    head = ("int one(builder *b, int x);\nint two(builder *b, int x,\n        int y);\n"
            "int look(const builder *b);\nint *at(builder *b, int x);\n")
    for body, wanted in PLANTED:
        found = find({"planted.h": head, "planted.c": "int f(builder *b, builder *c, int x)\n{\n" + body + "\n}\n"})
        assert len(found) == wanted, (body, found)
