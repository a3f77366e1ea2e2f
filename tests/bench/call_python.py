#!/usr/bin/env python3
"""`symplex-bench call --case python`: 20,000 runs of a softmax of 4 rows of 8 through the package for Python, with a
new NumPy array for each result, for each line on stdin; answers with the nanoseconds they took. Arguments are the
folder of the package, python/ of the build, and what is called: "module", "jit" (a traced function of the array) or
"jit-dict" (of a dict with it)."""
import sys

from peer import serve, set_threads

CALLS = 20000
PROGRAM = """sx 1
graph "softmax" {
    %x = parameter {name = "x", weight = 0} : f32[4, 8]
    %y = softmax(%x) {axis = 1} : f32[4, 8]
    return %y as "y"
}
"""


def engine():
    import numpy
    sys.path.insert(0, sys.argv[1])
    import symplex
    x = numpy.zeros((4, 8), numpy.float32)

    def softmax(x):
        e = numpy.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)
    options = {"threads": 1, "daemon": "never"}
    if sys.argv[2] == "module":
        called = symplex.compile(PROGRAM, **options)
    elif sys.argv[2] == "jit":
        called = symplex.jit(softmax, **options)
    else:
        called, x = symplex.jit(lambda d: softmax(d["x"]), **options), {"x": x}

    def run():
        for _ in range(CALLS):
            y = called(x)
        assert y[0, 0] == 0.125

    return f"symplex {symplex.__version__}, NumPy {numpy.__version__}", run


set_threads(1)
serve(engine)
