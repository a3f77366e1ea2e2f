"""One line on a terminal while a compile takes long."""
from __future__ import annotations

import sys
import time
from typing import Any

_AFTER_S = 0.3


class Line:
    """What `compile` calls with (stage, done, total). Nothing is written where stderr is no terminal, or before 0.3 s
    have gone by; the line is gone in the end."""

    def __init__(self, what: str, stream: Any = None) -> None:
        self.what, self.stream = what, stream if stream is not None else sys.stderr
        self.begin, self.width = time.monotonic(), 0
        self.live = hasattr(self.stream, "isatty") and self.stream.isatty()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self.live or time.monotonic() - self.begin < _AFTER_S:
            return
        part = f" {done} of {total}" if total else ""
        text = f"symplex: compiling {self.what}: {stage}{part} ({time.monotonic() - self.begin:.0f} s)"[:100]
        self.stream.write("\r" + text.ljust(self.width))
        self.stream.flush()
        self.width = len(text)

    def end(self) -> None:
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
