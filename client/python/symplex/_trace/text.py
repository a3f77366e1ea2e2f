"""Reads the text of programs (docs/IR.md) as `symplex-client` prints it, so that they can become part of others."""
from __future__ import annotations

import re
from typing import Any, Mapping

from symplex._trace.graph import Graph, dtype_of
from symplex._trace.size import parse

_TOKEN = re.compile(r'\s*(?://[^\n]*\n\s*)*("(?:[^"\\]|\\.)*"|%[\w.]+|[A-Za-z_][\w.]*|-?\d[\w.+-]*|-?inf|[^\s])')


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        self.at = 0
        self.bounds: dict[str, tuple[int, int]] = {}

    def peek(self) -> str:
        return self.tokens[self.at]

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def want(self, *words: str) -> None:
        for word in words:
            found = self.next()
            if found != word:
                raise ValueError(f"the text of a program has {found!r} where {word!r} is needed")

    def took(self, word: str) -> bool:
        if self.peek() != word:
            return False
        self.at += 1
        return True

    def until(self, *ends: str) -> str:
        """The words before a comma or bracket of this level."""
        words = []
        while self.peek() not in ends:
            words.append(self.next())
        return " ".join(words)

    def type(self) -> tuple[Any, tuple[Any, ...]]:
        element = self.next()
        self.want("[")
        shape = []
        while not self.took("]"):
            shape.append(parse(self.until(",", "]"), self.bounds))
            self.took(",")
        return dtype_of(element), tuple(shape)

    def symbols(self) -> None:
        """(batch in [1, 64], ...); sums among them are derived and need no row."""
        while not self.took(")"):
            words = self.until(",", ")", "in")
            if self.took("in"):
                self.want("[")
                low = int(self.next())
                self.want(",")
                self.bounds[words.strip('"')] = low, int(self.next())
                self.want("]")
            self.took(",")

    def attribute(self, key: str) -> Any:
        if self.peek() == "graph":
            self.next()
            return self.graph(Graph("inner"))[0]
        if self.took("["):
            words = []
            while not self.took("]"):
                words.append(self.until(",", "]"))
                self.took(",")
            if key == "origin" or all(re.fullmatch(r"-?\d+", w) for w in words):
                return [parse(w, self.bounds) for w in words]
            return f"[{', '.join(words)}]"
        word = self.next()
        return int(word) if re.fullmatch(r"-?\d+", word) else word

    def node(self, graph: Graph, known: dict[str, Any], names: list[str]) -> None:
        results = [self.next()]
        while self.took(","):
            results.append(self.next())
        self.want("=")
        operation, inputs, attributes = self.next(), [], {}
        if self.took("("):
            while not self.took(")"):
                inputs.append(known[self.next()])
                self.took(",")
        if self.took("{"):
            while not self.took("}"):
                key = self.next()
                self.want("=")
                attributes[key] = self.attribute(key)
                self.took(",")
        self.want(":")
        types = [self.type()]
        while self.took(","):
            types.append(self.type())
        if self.took("from"):
            self.at += 3
        if operation == "parameter":
            names.append(attributes["name"].strip('"'))
            known[results[0]] = graph.parameter(*types[0])
        else:
            known.update(zip(results, graph.many(operation, inputs, attributes, types)))

    def graph(self, graph: Graph) -> tuple[Graph, list[str], list[str]]:
        known: dict[str, Any] = {}
        names: list[str] = []
        outputs = []
        self.want("{")
        while not self.took("return"):
            self.node(graph, known, names)
        while not self.took("}"):
            graph.outputs.append(known[self.next()])
            self.want("as")
            outputs.append(self.next().strip('"'))
            self.took(",")
        return graph, names, outputs


def read(text: str, bounds: Mapping[str, tuple[int, int]]) -> tuple[Graph, list[str], list[str]]:
    """The program, and the names of its parameters and outputs."""
    reader = _Reader(text)
    reader.bounds.update(bounds)
    reader.want("sx", "1", "graph")
    reader.next()
    if reader.took("("):
        reader.symbols()
    return reader.graph(Graph("read"))
