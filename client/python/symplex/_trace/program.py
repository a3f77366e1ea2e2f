"""The text of a program, with a picture of it."""
from __future__ import annotations

import html
import re

_LINE = re.compile(r"^ {4}(%\S+(?:, %\S+)*) = (\w+)(?:\(([^)]*)\))?.*: (.+)$")
_LEAVES = {"parameter", "constant", "iota"}


class Program(str):
    """A program as text (docs/IR.md). In a notebook it is shown with its graph; `dot` gives that for Graphviz, `svg`
    as a picture."""

    def nodes(self) -> list[tuple[list[str], str, list[str], str]]:
        """(names, operation, operands, types) of each node outside of inner programs."""
        rows, depth = [], 0
        for line in self.splitlines():
            if depth <= 1:
                found = _LINE.match(line if not line.endswith("graph {") else line.split(" {")[0] + " : ...")
                if found:
                    names, operation, operands, types = found.groups()
                    rows.append((names.split(", "), operation, [o for o in (operands or "").split(", ") if o], types))
            depth += line.count("{") - line.count("}")
        return rows

    def dot(self) -> str:
        """The graph in the DOT language."""
        lines = ["digraph program {", '    node [shape=box, fontname="sans-serif", fontsize=10];']
        for names, operation, operands, types in self.nodes():
            label = f"{names[0]} {operation}\\n{types}".replace('"', "'")
            style = ", style=filled, fillcolor=lightgrey" if operation in _LEAVES else ""
            lines.append(f'    "{names[0]}" [label="{label}"{style}];')
            lines += [f'    "{name}" -> "{names[0]}" [dir=none];' for name in names[1:]]
            lines += [f'    "{operand}" -> "{names[0]}";' for operand in operands]
        return "\n".join(lines) + "\n}\n"

    def svg(self) -> str:
        """The graph as a picture: a row for each depth, leaves on top."""
        place: dict[str, tuple[int, int]] = {}
        boxes, edges = [], []
        widths: dict[int, int] = {}
        for names, operation, operands, types in self.nodes():
            depth = 1 + max((place[o][1] for o in operands if o in place), default=-1)
            column = widths.get(depth, 0)
            widths[depth] = column + 1
            for name in names:
                place[name] = column, depth
            x, y = 20 + column * 190, 20 + depth * 70
            fill = "#eee" if operation in _LEAVES else "#fff"
            boxes.append(f'<rect x="{x}" y="{y}" width="170" height="36" fill="{fill}" stroke="#444"/>'
                         f'<text x="{x + 6}" y="{y + 15}">{html.escape(f"{names[0]} {operation}")}</text>'
                         f'<text x="{x + 6}" y="{y + 30}" fill="#666">{html.escape(types[:30])}</text>')
            for o in operands:
                if o in place:
                    edges.append(f'<line x1="{105 + place[o][0] * 190}" y1="{56 + place[o][1] * 70}" x2="{x + 85}" '
                                 f'y2="{y}" stroke="#888"/>')
        width, height = 40 + max(widths.values(), default=1) * 190, 40 + (max(widths, default=0) + 1) * 70
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
                f'font-size="11">{"".join(edges)}{"".join(boxes)}</svg>')

    def _repr_html_(self) -> str:
        picture = self.svg() if len(self.nodes()) <= 200 else ""
        return f"{picture}<pre>{html.escape(self)}</pre>"
