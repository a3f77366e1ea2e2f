#!/usr/bin/env python3
"""The other side of `symplex-bench sort`: NumPy's sort of rows, the stable sort of their indices, or the first elements
found by a partition and sorted, once for each line on stdin. First line: name and version, or "none"."""
import sys

from peer import serve, set_threads

rows, length, count, indices, threads = (int(a) for a in sys.argv[1:6])
set_threads(threads)


def make():
    import numpy
    x = numpy.random.default_rng(7).random((rows, length), numpy.float32)
    name = f"NumPy {numpy.__version__}"
    if indices:
        return f"{name} argsort, stable", lambda: run(numpy.argsort, x, axis=1, kind="stable")
    if count == length:
        return f"{name} sort", lambda: run(numpy.sort, x, axis=1)
    return f"{name} partition and sort", lambda: run(lambda a: numpy.sort(
        numpy.partition(a, length - count, axis=1)[:, length - count:], axis=1), x)


def run(function, *arguments, **options):
    function(*arguments, **options)


serve(make)
