#!/usr/bin/env python3
"""include_graph.py sees what is planted: on trees that are made here, and on the real one with one include
more or less."""
import sys

sys.dont_write_bytecode = True
import include_graph  # noqa: E402

GOOD = {"base/a.c": ["base/a.h", "base/b.h"], "base/a.h": [], "base/b.h": [], "base/b.c": ["base/b.h"],
        "top/t.c": ["top/t.h", "base/a.h"], "top/t.h": ["base/b.h"], "tests/x.c": ["top/t.h", "base/a.h"]}
DRAWN = {"base": [], "top": ["base"]}


def told(word, changes, drawn=None, reasons=None):
    lines = include_graph.findings(dict(GOOD, **changes), DRAWN if drawn is None else drawn, reasons or {})
    assert len([line for line in lines if word in line]) == 1, (word, lines)


def test_made_trees():
    assert include_graph.findings(GOOD, DRAWN, {}) == []
    told("top includes other, an arrow that docs/ARCHITECTURE.md does not draw", {"top/t.c": ["other/o.h", "base/a.h"]})
    told("top -> other, but no file there includes one of other", {},
         {"base": [], "top": ["base", "other"], "other": []})
    told("no arrows of new", {"new/n.c": ["base/a.h"]})
    told("folders in a circle: base, top", {"base/b.c": ["top/t.h"]})
    told("files in a circle: base/a, base/b", {"base/b.c": ["base/b.h", "base/a.h"]})
    told("headers in a circle: base/a.h, base/b.h", {"base/a.h": ["base/b.h"], "base/b.h": ["base/a.h"]})
    told("base/a, base/b is no circle any more", {}, reasons={("base/a", "base/b"): "why"})
    circle = {"base/b.c": ["base/b.h", "base/a.h"]}
    assert include_graph.findings(dict(GOOD, **circle), DRAWN, {("base/a", "base/b"): "why"}) == []


def test_longer_circles():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a", "d"}}
    assert sorted(include_graph.circles(graph)) == [("a", "b", "c"), ("d", "e")]
    chain = {str(i): {str(i + 1)} for i in range(5000)}  # deeper than Python recurses
    assert include_graph.circles(chain) == []
    assert len(include_graph.circles(dict(chain, **{"5000": {"0"}}))[0]) == 5001


def test_the_tree():
    files, drawn = include_graph.sources(), include_graph.drawn_arrows()
    assert include_graph.findings(files, drawn, include_graph.CIRCLES) == []
    upwards = dict(files, **{"core/base/arena.c": files["core/base/arena.c"] + ["core/ir/ir.h"]})
    lines = include_graph.findings(upwards, drawn, include_graph.CIRCLES)
    assert any(line.startswith("core/base includes core/ir") for line in lines), lines
    assert any(line.startswith("folders in a circle: core/base, core/ir") for line in lines), lines


for name, function in list(globals().items()):
    if name.startswith("test_"):
        function()
        print("ok", name)
