#!/usr/bin/env python3
"""How near the first choice comes to the fastest schedule that was tried, by ways to correct the model's prices:

    judge_rows.py FILE      a file of rows as `symplex-client tune --times FILE` keeps them

The model as it is, ridge regressions (numpy) and boosted trees (scikit-learn 1.5.2, where it is installed), each
learned without the kernel that it is judged by: geometric mean and worst case over kernels."""
import collections
import math
import re
import sys

import numpy


def features(schedule):
    """The logarithms of the smallest steps along m, n and k in the grid, in loops and inside of them; their squares."""
    step = {}
    for bind, levels in re.findall(r"(\w+)\(([^)]*)\)", schedule):
        for level in levels.split(", "):
            axis, _, size = level.partition("/")
            if bind in ("grid", "loop", "cluster", "warp", "register", "lane", "matrix"):
                step[bind if bind in ("grid", "loop") else "in", axis] = int(size or 1)
    logs = [math.log2(step.get((kind, axis), 1)) for kind in ("grid", "loop", "in") for axis in "mnk"]
    return logs + [value * value for value in logs]


def read(path):
    """Kernel -> [(features, time, price)], of kernels with several rows."""
    kernels = collections.defaultdict(list)
    lines = open(path, encoding="utf-8").read().splitlines()
    if not lines or lines[0] != "symplex measured 3":
        sys.exit("judge_rows: %s: line 1: 'symplex measured 3' wanted" % path)
    for line in lines[1:]:
        if line.startswith("symplex correction"):
            break
        machine, device, kernel, time, price, _, _, _, schedule = line.split(" ", 8)
        kernels[machine, device, kernel].append((features(schedule), float(time), float(price)))
    return {kernel: rows for kernel, rows in kernels.items() if len(rows) > 1}


def centred(kernels):
    left, right = [], []
    for rows in kernels:
        x = numpy.array([row[0] for row in rows])
        y = numpy.array([math.log(row[1] / row[2]) for row in rows])
        left.append(x - x.mean(0))
        right.append(y - y.mean())
    return numpy.vstack(left), numpy.concatenate(right)


def ridge(strength):
    def learn(x, y):
        spread = x.std(0)
        used = spread > 1e-6
        x = x[:, used] / spread[used]
        weight = numpy.linalg.solve(x.T @ x + strength * numpy.eye(x.shape[1]), x.T @ y)
        return lambda of: of[:, used] / spread[used] @ weight
    return learn


def trees(count, depth):
    from sklearn.ensemble import GradientBoostingRegressor

    def learn(x, y):
        return GradientBoostingRegressor(n_estimators=count, max_depth=depth, random_state=0).fit(x, y).predict
    return learn


def judge(kernels, name, learn):
    quality = []
    for kernel, rows in kernels.items():
        said = numpy.log([row[2] for row in rows])
        if learn is not None:
            x, y = centred([other for key, other in kernels.items() if key != kernel])
            own = numpy.array([row[0] for row in rows])
            said = said + learn(x, y)(own - own.mean(0))
        quality.append(min(row[1] for row in rows) / rows[int(numpy.argmin(said))][1])
    print("%-24s %.3f  at worst %.3f" % (name, math.exp(numpy.mean(numpy.log(quality))), min(quality)))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    kernels = read(sys.argv[1])
    print("%d kernels, %d schedules" % (len(kernels), sum(map(len, kernels.values()))))
    judge(kernels, "model", None)
    for strength in (1, 10, 100, 1000):
        judge(kernels, "ridge %d" % strength, ridge(strength))
    try:
        for count, depth in ((50, 2), (100, 3)):
            judge(kernels, "%d trees of depth %d" % (count, depth), trees(count, depth))
    except ImportError:
        print("no trees: scikit-learn is not installed")


main()
