#!/usr/bin/env python3
"""Makes the models of this folder, byte for byte the same on every machine.

  make_models.py               writes mlp.onnx, encoder.onnx and cnn.onnx (Python standard library only)
  make_models.py --check       makes them again in memory and compares the bytes; with numpy also the expected outputs
  make_models.py --any-length FILE   writes the encoder with "seq" in place of its 128 positions
  make_models.py --reference   writes *.expected.npy: outputs computed in float64 by numpy, not by this project

Weights come from splitmix64 (core/base/rng.h) with a fixed seed, scaled to keep activations near 1. The graphs
are written the way exporters write them at opset 13: Gemm with transB, layer normalisation and GELU as
primitives, heads split by Reshape with a shape computed from the input, so that an importer has folding and
recognition to do. """
import argparse
import math
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
INPUT_SEED = 7
FLOAT, INT64 = 1, 7


class Rng:
    """splitmix64, the generator of core/base/rng.h."""

    def __init__(self, seed):
        self.state = seed

    def uniform(self, count):
        """`count` numbers in [-1, 1) that f32 holds exactly (sx_rng_f32)."""
        out = []
        state = self.state
        for _ in range(count):
            state = (state + GAMMA) & MASK
            z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
            out.append((((z ^ (z >> 31)) >> 39) - (1 << 24)) / (1 << 24))
        self.state = state
        return out


# ---- protobuf wire format: only what onnx.proto needs ----

def varint(value):
    value &= MASK
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field, value):
    return varint(field << 3) + varint(value)


def block(field, payload):
    if isinstance(payload, str):
        payload = payload.encode()
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def real(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def attribute(name, value):
    """AttributeProto: name 1, f 2, i 3, floats 7, ints 8, type 20."""
    head = block(1, name)
    if isinstance(value, float):
        return head + real(2, value) + integer(20, 1)
    if isinstance(value, int):
        return head + integer(3, value) + integer(20, 2)
    return head + b"".join(integer(8, v) for v in value) + integer(20, 7)


def node(op, inputs, outputs, name, **attributes):
    """NodeProto: input 1, output 2, name 3, op_type 4, attribute 5."""
    out = b"".join(block(1, i) for i in inputs) + b"".join(block(2, o) for o in outputs)
    out += block(3, name) + block(4, op)
    return out + b"".join(block(5, attribute(k, v)) for k, v in sorted(attributes.items()))


def tensor(name, dims, data_type, raw):
    """TensorProto: dims 1, data_type 2, name 8, raw_data 9."""
    return b"".join(integer(1, d) for d in dims) + integer(2, data_type) + block(8, name) + block(9, raw)


def value_info(name, dims):
    """ValueInfoProto: name 1, type 2 { tensor_type 1 { elem_type 1, shape 2 { dim 1 { value 1 | param 2 }}}}."""
    shape = b"".join(block(1, block(2, d) if isinstance(d, str) else integer(1, d)) for d in dims)
    return block(1, name) + block(2, block(1, integer(1, FLOAT) + block(2, shape)))


class Model:
    """Collects nodes and initializers of one graph; `weights` keeps name -> (dims, raw f32)."""

    def __init__(self, name, seed):
        self.name = name
        self.rng = Rng(seed)
        self.nodes = []
        self.initializers = []
        self.weights = {}

    def node(self, op, inputs, output, **attributes):
        self.nodes.append(node(op, inputs, [output], f"/{op}_{len(self.nodes)}", **attributes))
        return output

    def random(self, name, dims, bound, centre=0.0):
        raw = struct.pack(f"<{math.prod(dims)}f", *(centre + bound * v for v in self.rng.uniform(math.prod(dims))))
        return self.floats(name, dims, raw)

    def floats(self, name, dims, raw):
        self.initializers.append(tensor(name, dims, FLOAT, raw))
        self.weights[name] = (dims, raw)
        return name

    def scalar(self, name, value):
        return self.floats(name, [], struct.pack("<f", value))

    def ints(self, name, values, rank=1):
        dims = [len(values)] if rank == 1 else []
        self.initializers.append(tensor(name, dims, INT64, struct.pack(f"<{len(values)}q", *values)))
        return name

    def finish(self, inputs, outputs):
        """GraphProto: node 1, name 2, initializer 5, input 11, output 12. ModelProto: ir_version 1, producer
        2, graph 7, opset 8."""
        graph = b"".join(block(1, n) for n in self.nodes) + block(2, self.name)
        graph += b"".join(block(5, i) for i in self.initializers)
        graph += b"".join(block(11, value_info(n, d)) for n, d in inputs)
        graph += b"".join(block(12, value_info(n, d)) for n, d in outputs)
        opset = block(1, "") + integer(2, 13)
        return integer(1, 7) + block(2, "make_models.py") + block(7, graph) + block(8, opset)


# ---- the models ----

MLP_SIZES = [784, 512, 256, 10]
WIDTH, HEADS, SEQUENCE, HIDDEN, EPSILON = 256, 4, 128, 1024, 1e-5


def make_mlp():
    m = Model("mlp", 1)
    x = "x"
    for layer, (k, n) in enumerate(zip(MLP_SIZES, MLP_SIZES[1:])):
        w = m.random(f"fc{layer}.weight", [n, k], math.sqrt(6.0 / k))
        b = m.random(f"fc{layer}.bias", [n], 0.1)
        x = m.node("Gemm", [x, w, b], f"fc{layer}", alpha=1.0, beta=1.0, transB=1)
        if n != MLP_SIZES[-1]:
            x = m.node("Relu", [x], f"relu{layer}")
    m.node("Softmax", [x], "y", axis=1)
    return m, m.finish([("x", ["batch", MLP_SIZES[0]])], [("y", ["batch", MLP_SIZES[-1]])])


def layer_norm(m, x, name):
    gamma = m.random(f"{name}.weight", [WIDTH], 0.25, 1.0)
    beta = m.random(f"{name}.bias", [WIDTH], 0.1)
    mean = m.node("ReduceMean", [x], f"{name}.mean", axes=[-1], keepdims=1)
    centred = m.node("Sub", [x, mean], f"{name}.centred")
    squared = m.node("Pow", [centred, "two"], f"{name}.squared")
    variance = m.node("ReduceMean", [squared], f"{name}.variance", axes=[-1], keepdims=1)
    shifted = m.node("Add", [variance, "epsilon"], f"{name}.shifted")
    deviation = m.node("Sqrt", [shifted], f"{name}.deviation")
    normal = m.node("Div", [centred, deviation], f"{name}.normal")
    scaled = m.node("Mul", [normal, gamma], f"{name}.scaled")
    return m.node("Add", [scaled, beta], name)


def linear(m, x, name, k, n):
    w = m.random(f"{name}.weight", [k, n], math.sqrt(3.0 / k))
    b = m.random(f"{name}.bias", [n], 0.1)
    product = m.node("MatMul", [x, w], f"{name}.product")
    return m.node("Add", [b, product], name)


def attention(m, x, any_length):
    shape = m.node("Shape", [x], "attn.shape")
    batch = m.node("Gather", [shape, "zero"], "attn.batch", axis=0)
    batch = m.node("Unsqueeze", [batch, "axis0"], "attn.batch1")
    positions = "sequence"
    if any_length:
        positions = m.node("Gather", [shape, "first"], "attn.positions", axis=0)
        positions = m.node("Unsqueeze", [positions, "axis0"], "attn.positions1")
    split = m.node("Concat", [batch, positions, "heads", "head_width"], "attn.split", axis=0)
    merge = m.node("Concat", [batch, positions, "width"], "attn.merge", axis=0)
    parts = {}
    for part, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        flat = linear(m, x, f"attn.{part}", WIDTH, WIDTH)
        heads = m.node("Reshape", [flat, split], f"attn.{part}.heads")
        parts[part] = m.node("Transpose", [heads], f"attn.{part}.moved", perm=perm)
    scores = m.node("MatMul", [parts["q"], parts["k"]], "attn.scores")
    scaled = m.node("Div", [scores, "head_root"], "attn.scaled")
    weights = m.node("Softmax", [scaled], "attn.weights", axis=-1)
    mixed = m.node("MatMul", [weights, parts["v"]], "attn.mixed")
    moved = m.node("Transpose", [mixed], "attn.moved", perm=[0, 2, 1, 3])
    joined = m.node("Reshape", [moved, merge], "attn.joined")
    return linear(m, joined, "attn.out", WIDTH, WIDTH)


def gelu(m, x):
    t = m.node("Div", [x, "root_two"], "gelu.scaled")
    t = m.node("Erf", [t], "gelu.erf")
    t = m.node("Add", [t, "one"], "gelu.shifted")
    t = m.node("Mul", [x, t], "gelu.product")
    return m.node("Mul", [t, "half"], "gelu")


def encoder_constants(m, any_length):
    m.ints("zero", [0], rank=0)
    if any_length:
        m.ints("first", [1], rank=0)
    m.ints("axis0", [0])
    for name, value in (("sequence", SEQUENCE), ("heads", HEADS), ("head_width", WIDTH // HEADS), ("width", WIDTH)):
        m.ints(name, [value])
    for name, value in (("two", 2.0), ("epsilon", EPSILON), ("head_root", math.sqrt(WIDTH // HEADS)),
                        ("root_two", math.sqrt(2.0)), ("one", 1.0), ("half", 0.5)):
        m.scalar(name, value)


def encoder_layer(m, x, any_length):
    x = m.node("Add", [x, attention(m, layer_norm(m, x, "norm1"), any_length)], "residual1")
    hidden = gelu(m, linear(m, layer_norm(m, x, "norm2"), "ffn.up", WIDTH, HIDDEN))
    return m.node("Add", [x, linear(m, hidden, "ffn.down", HIDDEN, WIDTH)], "residual2")


def make_encoder(any_length=False):
    m = Model("encoder", 2)
    encoder_constants(m, any_length)
    x = encoder_layer(m, "x", any_length)
    m.node("Identity", [layer_norm(m, x, "norm3")], "y")
    dims = ["batch", "seq" if any_length else SEQUENCE, WIDTH]
    return m, m.finish([("x", dims)], [("y", dims)])


CNN_SIDE, CNN_INPUT = 32, 3


def conv(m, x, name, k, n, window, norm=True, **attributes):
    """Convolution without bias, then batch normalisation."""
    groups = attributes.get("group", 1)
    w = m.random(f"{name}.weight", [n, k // groups, window, window], math.sqrt(6.0 / (k // groups * window * window)))
    x = m.node("Conv", [x, w], f"{name}.conv", kernel_shape=[window, window], pads=[window // 2] * 4, **attributes)
    if not norm:
        return x
    scale = m.random(f"{name}.norm.weight", [n], 0.25, 1.0)
    bias = m.random(f"{name}.norm.bias", [n], 0.1)
    mean = m.random(f"{name}.norm.mean", [n], 0.1)
    variance = m.random(f"{name}.norm.variance", [n], 0.5, 1.0)
    return m.node("BatchNormalization", [x, scale, bias, mean, variance], f"{name}.norm", epsilon=EPSILON)


def make_cnn():
    m = Model("cnn", 3)
    x = m.node("Relu", [conv(m, "x", "stem", CNN_INPUT, 16, 3, strides=[1, 1])], "stem.relu")
    x = m.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = m.node("Relu", [conv(m, x, "block1.a", 16, 16, 3)], "block1.relu")
    y = conv(m, y, "block1.b", 16, 16, 3)
    x = m.node("Relu", [m.node("Add", [y, x], "block1.sum")], "block1")
    x = m.node("Relu", [conv(m, x, "block2.a", 16, 32, 3, strides=[2, 2])], "block2.relu")
    x = conv(m, x, "block2.depth", 32, 32, 3, norm=False, group=32)
    x = m.node("Relu", [conv(m, x, "block2.point", 32, 32, 1)], "block2")
    x = m.node("GlobalAveragePool", [x], "pool")
    x = m.node("Flatten", [x], "flat", axis=1)
    w = m.random("head.weight", [10, 32], math.sqrt(6.0 / 32))
    b = m.random("head.bias", [10], 0.1)
    m.node("Gemm", [x, w, b], "y", transB=1)
    return m, m.finish([("x", ["batch", CNN_INPUT, CNN_SIDE, CNN_SIDE])], [("y", ["batch", 10])])


# ---- outputs by a second implementation: float64, numpy ----

def cnn_reference(np, w):
    def windows(x, size, stride, fill):
        """[n, c, y, x] -> the padded tensor shifted by each place of the window, one after the other."""
        pad = size // 2
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
        side = (x.shape[2] - size) // stride + 1
        for i in range(size):
            for j in range(size):
                yield i, j, x[:, :, i:i + (side - 1) * stride + 1:stride, j:j + (side - 1) * stride + 1:stride]

    def conv(x, name, stride=1, depthwise=False, norm=True):
        k = w[name + ".weight"]
        form = "nchw,c->nchw" if depthwise else "nchw,oc->nohw"
        x = sum(np.einsum(form, part, k[:, 0, i, j] if depthwise else k[:, :, i, j])
                for i, j, part in windows(x, k.shape[2], stride, 0.0))
        if not norm:
            return x
        scale, bias, mean, variance = (w[f"{name}.norm.{p}"][:, None, None]
                                       for p in ("weight", "bias", "mean", "variance"))
        return (x - mean) / np.sqrt(variance + float(np.float32(EPSILON))) * scale + bias  # the attribute is f32

    def relu(x):
        return np.maximum(x, 0)

    x = np.array(Rng(INPUT_SEED).uniform(2 * CNN_INPUT * CNN_SIDE ** 2)).reshape(2, CNN_INPUT, CNN_SIDE, CNN_SIDE)
    x = relu(conv(x, "stem"))
    x = np.max([part for _, _, part in windows(x, 3, 2, -np.inf)], axis=0)
    x = relu(conv(relu(conv(x, "block1.a")), "block1.b") + x)
    x = conv(relu(conv(x, "block2.a", 2)), "block2.depth", depthwise=True, norm=False)
    x = relu(conv(x, "block2.point")).mean((2, 3))
    return (x @ w["head.weight"].T + w["head.bias"]).ravel()


def reference(np, name, model):
    """Output for batch 3 (mlp) or 2 (cnn, encoder) of inputs Rng(INPUT_SEED); of the encoder every 97th element."""
    w = {k: np.frombuffer(raw, "<f4").reshape(dims).astype(np.float64) for k, (dims, raw) in model.weights.items()}

    if name == "cnn":
        return cnn_reference(np, w)

    def norm(x, n):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + w["epsilon"]) * w[n + ".weight"] + w[n
                + ".bias"]

    def dense(x, n):
        return x @ w[n + ".weight"] + w[n + ".bias"]

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    if name == "mlp":
        x = np.array(Rng(INPUT_SEED).uniform(3 * MLP_SIZES[0])).reshape(3, -1)
        for layer in range(3):
            x = x @ w[f"fc{layer}.weight"].T + w[f"fc{layer}.bias"]
            x = np.maximum(x, 0) if layer < 2 else softmax(x)
        return x.ravel()
    x = np.array(Rng(INPUT_SEED).uniform(2 * SEQUENCE * WIDTH)).reshape(2, SEQUENCE, WIDTH)
    h = norm(x, "norm1")
    q, k, v = (dense(h, "attn." + p).reshape(2, SEQUENCE, HEADS, -1).swapaxes(1, 2) for p in "qkv")
    mixed = softmax(q @ k.swapaxes(2, 3) / w["head_root"]) @ v
    x = x + dense(mixed.swapaxes(1, 2).reshape(2, SEQUENCE, WIDTH), "attn.out")
    h = dense(norm(x, "norm2"), "ffn.up")
    h = 0.5 * h * (1 + np.vectorize(math.erf)(h / w["root_two"]))
    return norm(x + dense(h, "ffn.down"), "norm3").ravel()[::97]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--any-length", metavar="FILE")
    options = parser.parse_args()
    if options.any_length:
        with open(options.any_length, "wb") as file:
            file.write(make_encoder(any_length=True)[1])
        return 0
    np = None
    try:
        import numpy as np
    except ImportError:
        if options.reference:
            sys.exit("make_models: --reference needs numpy")
    failed = False
    for name, make in (("mlp", make_mlp), ("encoder", make_encoder), ("cnn", make_cnn)):
        model, data = make()
        path = os.path.join(HERE, name + ".onnx")
        expected = os.path.join(HERE, name + ".expected.npy")
        if options.check:
            with open(path, "rb") as file:
                same = file.read() == data
            print(f"{name}.onnx: {'same' if same else 'DIFFERENT'}, {len(data)} bytes")
            failed |= not same
            if np is not None:
                error = abs(np.load(expected) - reference(np, name, model)).max()
                print(f"{name}.expected.npy: largest difference {error:.3g}, at most 1e-12")
                failed |= not error <= 1e-12
            continue
        if options.reference:
            np.save(expected, reference(np, name, model).astype("<f8"))
            continue
        with open(path, "wb") as file:
            file.write(data)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
