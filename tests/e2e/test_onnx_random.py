#!/usr/bin/env python3
"""Random ONNX networks of f32 and f64: each compiles, and `run` gives what onnxruntime gives.

usage: test_onnx_random.py [FIRST [COUNT]]    networks of the seeds FIRST and following; SX_SEED also gives FIRST

The tolerance follows the network, as in test_networks.py: onnxruntime is asked again with every input and weight
off by one unit in the last place at random, and the spread of its results is the size of rounding in this network.
Allowed are TOLERANCE spreads and, for functions of exact operands, as many units of the largest result. Where a
result has a jump (ArgMax, Sign, Cast to an integer) and the draws disagree by it, the spread says so; jumps that
only the module takes are counted, and more than one in JUMPS networks is a failure."""
import collections
import math
import os
import pathlib
import random
import subprocess
import sys

sys.dont_write_bytecode = True
try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    sys.exit(f"{error}: run deploy/install-deps.sh, which puts it into build/venv")

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
FOLDER = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "onnx-random"
COUNT = 80
DRAWS = 4
TOLERANCE = 64  # two engines that round, in another order, over up to 16 operations; the worst of few draws
JUMPS = 100
EXTENTS = [1, 2, 3, 4, 5, 7, 8, 16, 17, 33]
LARGE = [64, 65, 100, 130, 257]
ELEMENTS = 200_000
TYPES = {numpy.dtype(numpy.float32): TensorProto.FLOAT, numpy.dtype(numpy.float64): TensorProto.DOUBLE}


class Network:
    """A graph that grows by one operation at a time, and the shapes of its tensors."""

    def __init__(self, seed):
        self.pick = random.Random(seed)
        self.draw = numpy.random.RandomState(seed % 2**32)
        self.dtype = numpy.dtype(self.pick.choice([numpy.float32, numpy.float32, numpy.float64]))
        self.extents = EXTENTS + (LARGE if self.pick.random() < 0.3 else [])
        self.nodes, self.constants, self.tensors, self.inputs = [], [], [], []
        for i in range(self.pick.choice([1, 2])):
            rank = self.pick.choice([2, 2, 3, 4, 4])
            shape = [self.extent() for _ in range(rank)]
            while math.prod(shape) > ELEMENTS:
                shape = [self.extent() for _ in range(rank)]
            self.inputs.append((f"x{i}", shape))
            self.tensors.append((f"x{i}", shape))

    def extent(self):
        return self.pick.choice(self.extents)

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(numpy.asarray(array), name))
        return name

    def whole(self, *values):
        return self.constant(numpy.array(values, numpy.int64))

    def weight(self, *shape):
        return self.constant((self.draw.randn(*shape) / 2).astype(self.dtype))

    def scalar(self, value):
        return self.constant(numpy.array(value, self.dtype))

    def node(self, op, inputs, outputs=1, **attributes):
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"{op}_{len(self.nodes)}", **attributes))
        return names if outputs > 1 else names[0]

    def add(self, op, inputs, shape, **attributes):
        """One more node, whose result others may read."""
        self.tensors.append((self.node(op, inputs, **attributes), list(shape)))
        return self.tensors[-1][0]

    def like(self, fits):
        """A tensor whose shape fits, or None."""
        found = [t for t in self.tensors if fits(t[1])]
        return self.pick.choice(found) if found else None


def with_extent(shape, axis, extent):
    return shape[:axis] + [extent] + shape[axis + 1:]


# ---- operations: one more node on tensor x of a shape; nothing where it has no meaning there ----
def unary(net, x, shape):
    op = net.pick.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softplus", "Softsign", "Identity", "HardSwish",
                          "Elu", "LeakyRelu", "HardSigmoid", "Selu", "Mish", "Asinh", "Sinh"])
    net.add(op, [x], shape)


def positive(net, x, shape):
    away = net.add("Add", [net.add("Abs", [x], shape), net.scalar(0.3)], shape)
    net.add(net.pick.choice(["Sqrt", "Log", "Reciprocal"]), [away], shape)


def binary(net, x, shape):
    fits = net.like(lambda s: len(s) == len(shape) and all(b in (a, 1) for a, b in zip(shape, s)))
    if net.pick.random() < 0.6:
        net.add(net.pick.choice(["Add", "Sub", "Mul", "Max", "Min"]), [x, fits[0]], shape)
    else:
        other = [d if net.pick.random() < 0.6 else 1 for d in shape][net.pick.randrange(len(shape)):]
        net.add(net.pick.choice(["Add", "Sub", "Mul"]), [x, net.weight(*other)], shape)


def several(net, x, shape):
    net.add(net.pick.choice(["Sum", "Mean", "Max"]), [x, x, net.like(lambda s: s == shape)[0]], shape)


def matmul(net, x, shape):
    if len(shape) < 2:
        return
    other = net.like(lambda s: len(s) == len(shape) and s[:-2] == shape[:-2] and s[-2] == shape[-1])
    if other and net.pick.random() < 0.5:
        net.add("MatMul", [x, other[0]], shape[:-1] + [other[1][-1]])
    elif net.pick.random() < 0.3:
        order = list(range(len(shape) - 2)) + [len(shape) - 1, len(shape) - 2]
        turned = net.add("Transpose", [x], shape[:-2] + [shape[-1], shape[-2]], perm=order)
        net.add("MatMul", [x, turned], shape[:-1] + [shape[-2]])
    else:
        columns = net.extent()
        net.add("MatMul", [x, net.weight(shape[-1], columns)], shape[:-1] + [columns])


def gemm(net, x, shape):
    if len(shape) == 2:
        net.add("Gemm", [x, net.weight(7, shape[1]), net.weight(7)], [shape[0], 7], transB=1, alpha=0.5, beta=1.5)


def einsum(net, x, shape):
    columns = net.extent()
    if len(shape) == 2:
        net.add("Einsum", [x, net.weight(shape[1], columns)], [columns, shape[0]], equation="ab,bc->ca")
    elif len(shape) == 3:
        net.add("Einsum", [x, net.weight(shape[2], columns)], [shape[0], columns, shape[1]], equation="abc,cd->adb")


def transpose(net, x, shape):
    order = list(range(len(shape)))
    net.pick.shuffle(order)
    net.add("Transpose", [x], [shape[d] for d in order], perm=order)


def reshape(net, x, shape):
    d = net.pick.randrange(len(shape))
    parts = [f for f in (2, 3, 4, 5) if shape[d] % f == 0]
    if net.pick.random() < 0.6 and d + 1 < len(shape):
        to = shape[:d] + [shape[d] * shape[d + 1]] + shape[d + 2:]
    elif parts and len(shape) < 5:
        to = shape[:d] + [parts[0], shape[d] // parts[0]] + shape[d + 1:]
    else:
        return
    net.add("Reshape", [x, net.whole(*to)], to)


def concat(net, x, shape):
    axis = net.pick.randrange(len(shape))
    other = net.like(lambda s: len(s) == len(shape) and with_extent(s, axis, 1) == with_extent(shape, axis, 1))
    net.add("Concat", [x, other[0]], with_extent(shape, axis, shape[axis] + other[1][axis]), axis=axis)


def split(net, x, shape):
    axis = net.pick.randrange(len(shape))
    if shape[axis] > 1:
        first = net.pick.randrange(1, shape[axis])
        parts = (first, shape[axis] - first)
        names = net.node("Split", [x, net.whole(*parts)], 2, axis=axis)
        net.tensors += [(name, with_extent(shape, axis, part)) for name, part in zip(names, parts)]


def cut(net, x, shape):
    axis, step = net.pick.randrange(len(shape)), net.pick.choice([1, 1, 2, -1])
    if step == -1:
        first, last, left = shape[axis] - 1, -10**9, shape[axis]
    else:
        first = net.pick.randrange(shape[axis])
        last = net.pick.randint(first + 1, shape[axis])
        left = math.ceil((last - first) / step)
    net.add("Slice", [x] + [net.whole(v) for v in (first, last, axis, step)], with_extent(shape, axis, left))


def pad(net, x, shape):
    axis, sides = net.pick.randrange(len(shape)), [net.pick.randint(-1, 2), net.pick.randint(-1, 2)]
    if shape[axis] + min(sides) < 1 or shape[axis] + sum(sides) < 1:  # the peer takes no more away than there is
        return
    widths = [0] * (2 * len(shape))
    widths[axis], widths[axis + len(shape)] = sides
    net.add("Pad", [x, net.whole(*widths), net.scalar(0.5)], with_extent(shape, axis, shape[axis] + sum(sides)))


def gather(net, x, shape):
    axis, count = net.pick.randrange(len(shape)), net.extent()
    index = net.draw.randint(0, shape[axis], size=count).astype(numpy.int64)
    net.add("Gather", [x, net.constant(index)], with_extent(shape, axis, count), axis=axis)


def gather_elements(net, x, shape):
    axis = net.pick.randrange(len(shape))
    to = with_extent(shape, axis, net.pick.choice([1, 2, 5]))
    index = net.draw.randint(0, shape[axis], size=to).astype(numpy.int64)
    net.add("GatherElements", [x, net.constant(index)], to, axis=axis)


def tuples(net, shape):
    """Indices of rows, one or two numbers each, some from the end."""
    depth, count = net.pick.choice([1, min(2, len(shape))]), net.pick.randint(1, 6)
    index = [net.draw.randint(-extent, extent, size=count) for extent in shape[:depth]]
    return depth, count, net.constant(numpy.stack(index, 1).astype(numpy.int64))


def gather_nd(net, x, shape):
    depth, count, index = tuples(net, shape)
    net.add("GatherND", [x, index], [count] + shape[depth:])


def scatter(net, x, shape):
    depth, count, index = tuples(net, shape)
    how = net.pick.choice(["add", "mul", "max", "min"] + ["none"] * (count == 1))  # of equal ones either may stay
    net.add("ScatterND", [x, index, net.weight(count, *shape[depth:])], shape, reduction=how)


def scatter_elements(net, x, shape):
    axis, how = net.pick.randrange(len(shape)), net.pick.choice(["add", "max", "none"])
    to = with_extent(shape, axis, 1 if how == "none" else net.pick.choice([1, 2, 3]))
    if math.prod(shape) <= 4000:  # each element meets every index
        index = net.draw.randint(-shape[axis], shape[axis], size=to).astype(numpy.int64)
        net.add("ScatterElements", [x, net.constant(index), net.weight(*to)], shape, axis=axis, reduction=how)


def repeat(net, x, shape):
    if net.pick.random() < 0.5:
        net.add("Tile", [x, net.whole(2, *[1] * (len(shape) - 1))], [2 * shape[0]] + shape[1:])
    else:
        to = [net.extent() if d == 1 else d for d in shape]
        net.add("Expand", [x, net.whole(*to)], to)


def triangle(net, x, shape):
    if len(shape) > 1:
        net.add("Trilu", [x], shape, upper=net.pick.choice([0, 1]))


def running_sum(net, x, shape):
    net.add("CumSum", [x, net.constant(numpy.array(net.pick.randrange(len(shape)), numpy.int64))], shape,
            exclusive=net.pick.choice([0, 1]), reverse=net.pick.choice([0, 1]))


def reduce(net, x, shape):
    axes = sorted(net.pick.sample(range(len(shape)), net.pick.randint(1, len(shape))))
    keep = net.pick.choice([0, 1]) if len(axes) < len(shape) else 1
    to = [1 if d in axes else n for d, n in enumerate(shape) if keep or d not in axes]
    op = net.pick.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare"])
    net.add(op, [x, net.whole(*axes)], to, keepdims=keep)


def softmax(net, x, shape):
    net.add(net.pick.choice(["Softmax", "LogSoftmax"]), [x], shape, axis=net.pick.randrange(-1, len(shape)))


def normalize(net, x, shape):
    if net.pick.random() < 0.5 and shape[-1] > 2:
        net.add("LayerNormalization", [x, net.weight(shape[-1]), net.weight(shape[-1])], shape, axis=-1)
    elif len(shape) > 2:
        variance = net.constant((numpy.abs(net.draw.randn(shape[1])) + 0.5).astype(net.dtype))
        net.add("BatchNormalization", [x, *[net.weight(shape[1]) for _ in range(3)], variance], shape)


def convolution(net, x, shape):
    if len(shape) != 4 or min(shape[2:]) < 3 or net.dtype != numpy.float32:  # the peer has none on f64
        return
    groups = shape[1] if net.pick.random() < 0.3 else 1
    out = groups * net.pick.choice([1, 2]) if groups > 1 else net.pick.choice([1, 3, 4, 8, 16])
    side, stride = net.pick.choice([1, 2, 3]), net.pick.choice([1, 2])
    border = net.pick.choice([0, 1]) if side > 1 else 0
    places = [(d + 2 * border - side) // stride + 1 for d in shape[2:]]
    bias = [net.weight(out)] if net.pick.random() < 0.5 else []
    net.add("Conv", [x, net.weight(out, shape[1] // groups, side, side), *bias], [shape[0], out] + places,
            kernel_shape=[side] * 2, strides=[stride] * 2, pads=[border] * 4, group=groups)


def turned_convolution(net, x, shape):
    if len(shape) == 4 and shape[1] < 40 and net.dtype == numpy.float32:
        out, side, stride = net.pick.choice([1, 2, 5]), net.pick.choice([2, 3]), net.pick.choice([1, 2])
        border = net.pick.choice([0, 1, side])  # as wide as the kernel: elements of x have no part in the result
        places = [(d - 1) * stride + side - 2 * border for d in shape[2:]]
        if min(places) > 0:
            net.add("ConvTranspose", [x, net.weight(shape[1], out, side, side)], [shape[0], out] + places,
                    kernel_shape=[side] * 2, strides=[stride] * 2, pads=[border] * 4)


def pool(net, x, shape):
    if len(shape) == 4 and min(shape[2:]) > 1 and net.dtype == numpy.float32:
        stride = net.pick.choice([1, 2])
        net.add(net.pick.choice(["MaxPool", "AveragePool"]), [x],
                shape[:2] + [(d - 2) // stride + 1 for d in shape[2:]], kernel_shape=[2, 2], strides=[stride] * 2)


def blocks(net, x, shape):
    if len(shape) == 4 and shape[1] % 4 == 0:
        net.add("DepthToSpace", [x], [shape[0], shape[1] // 4, 2 * shape[2], 2 * shape[3]], blocksize=2,
                mode=net.pick.choice(["DCR", "CRD"]))
    elif len(shape) == 4 and shape[2] % 2 == 0 and shape[3] % 2 == 0:
        net.add("SpaceToDepth", [x], [shape[0], 4 * shape[1], shape[2] // 2, shape[3] // 2], blocksize=2)


def choose(net, x, shape):
    less = net.node("Less", [x, net.like(lambda s: s == shape)[0]])
    net.add("Where", [less, x, net.like(lambda s: s == shape)[0]], shape)


def clip(net, x, shape):
    net.add("Clip", [x, net.scalar(-1), net.scalar(1.5)], shape)


def index_of(net, x, shape):
    axis = net.pick.randrange(len(shape))
    index = net.node(net.pick.choice(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=1)
    net.add("Cast", [index], with_extent(shape, axis, 1), to=TYPES[net.dtype])


def top_k(net, x, shape):
    axis = net.pick.randrange(len(shape))
    count = net.pick.choice([1, min(3, shape[axis]), shape[axis]])
    values, index = net.node("TopK", [x, net.whole(count)], 2, axis=axis, largest=net.pick.choice([0, 1]))
    net.tensors.append((values, with_extent(shape, axis, count)))
    if net.pick.random() < 0.5:  # of equal elements both have the first
        net.add("Cast", [index], with_extent(shape, axis, count), to=TYPES[net.dtype])


def integers(net, x, shape):
    kind = net.pick.choice([TensorProto.INT32, TensorProto.INT64])
    clipped = net.add("Clip", [x, net.scalar(0), net.scalar(100)], shape)
    number = net.node("Cast", [clipped], to=kind)
    number = net.node(net.pick.choice(["Add", "Mul", "Sub"]), [number, number])
    net.add("Cast", [number], shape, to=TYPES[net.dtype])


def slope(net, x, shape):
    net.add("PRelu", [x, net.weight(shape[-1])], shape)


OPERATIONS = [unary, unary, unary, positive, binary, binary, several, matmul, gemm, einsum, transpose, reshape, concat,
              split, cut, pad, gather, gather_elements, gather_nd, scatter, scatter_elements, repeat, triangle,
              running_sum, reduce, reduce, softmax,
              normalize, normalize, convolution, convolution, turned_convolution, pool, blocks, choose, clip, index_of,
              top_k, integers, slope]


def make(seed):
    """A model, its inputs by name, and the names of its outputs."""
    net = Network(seed)
    for _ in range(net.pick.randint(2, 14)):
        x, shape = net.pick.choice(net.tensors[-4:])
        net.pick.choice(OPERATIONS)(net, x, shape)
        if math.prod(net.tensors[-1][1]) > ELEMENTS:
            break
    made = [name for name, _ in net.tensors[len(net.inputs):]] or [net.node("Identity", ["x0"])]
    outputs = [made[-1]] + ([net.pick.choice(made)] if net.pick.random() < 0.4 else [])
    outputs = list(dict.fromkeys(outputs))
    kind = TYPES[net.dtype]
    graph = helper.make_graph(net.nodes, f"random_{seed}",
                              [helper.make_tensor_value_info(name, kind, shape) for name, shape in net.inputs],
                              [helper.make_tensor_value_info(name, kind, None) for name in outputs], net.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model, {name: net.draw.randn(*shape).astype(net.dtype) for name, shape in net.inputs}, outputs


# ---- the peer ----
def ask_peer(model, feed, outputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [numpy.float64(value) for value in session.run(outputs, feed)]


def a_unit_off(array, draw):
    if array.dtype not in TYPES:
        return array
    return (array * (1 + numpy.finfo(array.dtype).eps * draw.choice([-1, 1], array.shape))).astype(array.dtype)


def spreads(model, feed, outputs, wanted, seed):
    """How far each output moves when everything that goes in is a unit off."""
    draw = numpy.random.RandomState(seed % 2**32)
    spread = [0.0] * len(outputs)
    for _ in range(DRAWS):
        other = onnx.ModelProto()
        other.CopyFrom(model)
        for weight in other.graph.initializer:
            weight.CopyFrom(numpy_helper.from_array(a_unit_off(numpy_helper.to_array(weight), draw), weight.name))
        got = ask_peer(other, {name: a_unit_off(value, draw) for name, value in feed.items()}, outputs)
        with numpy.errstate(invalid="ignore"):
            spread = [max(s, float(numpy.nanmax(numpy.abs(g - w), initial=0))) for s, g, w in zip(spread, got, wanted)]
    return spread


# ---- ours ----
def client(*arguments):
    return subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          env=dict(os.environ, SYMPLEX_SOCKET="/nonexistent/d.sock"))


def compare(seed):
    """(what happened, details): agreed, jumped or failed; passed over where the peer lacks a kernel."""
    model, feed, outputs = make(seed)
    try:
        wanted = ask_peer(model, feed, outputs)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return "passed over", ""
    folder = FOLDER / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "m.onnx")
    result = client("compile", folder / "m.onnx", "-o", folder / "m.sxm")
    if result.returncode != 0:
        return "failed", f"compile: {result.stderr}"
    inputs = []
    for name, value in feed.items():
        numpy.save(folder / f"{name}.npy", value)
        inputs += ["--input", f"{name}={folder / name}.npy"]
    result = client("run", folder / "m.sxm", *inputs, "--output", folder / "out")
    if result.returncode != 0:
        return "failed", f"run: {result.stderr}"
    unit = float(numpy.finfo(next(iter(feed.values())).dtype).eps)
    for name, want, spread in zip(outputs, wanted, spreads(model, feed, outputs, wanted, seed)):
        got = numpy.float64(numpy.load(folder / "out" / f"{name}.npy"))
        if got.shape != want.shape or (numpy.isnan(got) != numpy.isnan(want)).any():
            return "failed", f"{name}: shape {got.shape} for {want.shape}, or NaN at other places"
        scale = float(numpy.nanmax(numpy.abs(want), initial=0))
        error = float(numpy.nanmax(numpy.abs(got - want), initial=0))
        if not error <= TOLERANCE * (spread + unit * scale):
            jumps = any(node.op_type in ("ArgMax", "ArgMin", "TopK", "Cast", "Less") for node in model.graph.node)
            return ("jumped" if jumps else "failed"), f"{name}: off by {error:.2e} of {scale:.2e}, spread {spread:.2e}"
    for path in [*folder.glob("out/*"), *folder.glob("*.*")]:
        path.unlink()
    return "agreed", ""


def main():
    first = int(sys.argv[1]) if len(sys.argv) > 1 else int(os.environ.get("SX_SEED", "0"))
    count = int(sys.argv[2]) if len(sys.argv) > 2 else COUNT
    print(f"seed: SX_SEED={first}, {count} networks")
    seen = collections.Counter()
    for seed in range(first, first + count):
        what, details = compare(seed)
        seen[what] += 1
        if details:
            print(f"seed {seed}: {what}: {details} (model in {FOLDER / str(seed)})", flush=True)
    print(", ".join(f"{what} {times}" for what, times in sorted(seen.items())))
    enough = seen["agreed"] >= count * 3 // 4 and seen["jumped"] * JUMPS <= count + JUMPS
    sys.exit(0 if enough and seen["failed"] == 0 else 1)


if __name__ == "__main__":
    main()
