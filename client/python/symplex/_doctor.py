"""What works here, for people who ask why something does not."""
from __future__ import annotations

import array
import importlib.metadata
import pathlib
import platform
import sys
from typing import Callable

from symplex import _c
from symplex._compile import compile
from symplex._errors import Error

_PROGRAM = """sx 1
graph "doctor" {
    %x = parameter {name = "x", weight = 0} : f32[4]
    %y = add(%x, %x) : f32[4]
    return %y as "y"
}
"""


def _daemon() -> str:
    version, build, _, pid = _c.ping(None)
    return f"{version} ({build}), process {pid}"


def _works() -> str:
    module = compile(_PROGRAM, threads=1)
    y = array.array("f", [0.0] * 4)
    module(array.array("f", [1.0, 2.0, 3.0, 4.0]), out=y)
    if list(y) != [2.0, 4.0, 6.0, 8.0]:
        raise Error(f"1 + 1, 2 + 2, ... gave {list(y)}")
    assert module.compiled is not None
    return f"compiled for {module.info['target']} in {1e3 * module.compiled['total_s']:.1f} ms, from " \
           f"{module.compiled['tier']}; the result is right"


def doctor() -> bool:
    """Prints what is there, one line each; true if programs compile and run."""
    def line(name: str, ask: Callable[[], str]) -> bool:
        try:
            print(f"{name:10} {ask()}")
            return True
        except Exception as error:
            print(f"{name:10} {str(error).splitlines()[0] if str(error) else type(error).__name__}")
            return False

    line("symplex", lambda: f"{_c.version}, {pathlib.Path(_c.__file__).parent}")
    line("python", lambda: f"{platform.python_version()}, {sys.executable}")
    for package in "numpy", "ml_dtypes":
        line(package, lambda: importlib.metadata.version(package))
    line("daemon", _daemon)
    return line("compile", _works)
