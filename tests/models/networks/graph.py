"""An ONNX graph written node by node, with the names and the little idioms of PyTorch's TorchScript exporter
(opset 17, evaluation mode).

Names follow the module: the node of layer1[0].conv1 is /layer1/layer1.0/conv1/Conv, its result ..._output_0, a
second one Conv_1. Weights have their names of the state dictionary; those that the exporter folds (a
convolution with its batch norm, the transposed weight of a linear layer) are called onnx::Conv_7 as there.
Weights are random, from a seed, scaled so that activations stay near 1."""
import numpy
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
INT64_MAX = 2**63 - 1


class Graph:
    def __init__(self, name, seed):
        self.name, self.nodes, self.weights, self.inputs, self.outputs = name, [], [], [], []
        self.random = numpy.random.default_rng(seed)
        self.count, self.scopes, self.folded = {}, [], 0

    # ---- names ----
    def scope(self, name):
        """`with g.scope("layer1.0"):` the nodes of a module; nested modules say their whole path, as in the
        exporter."""
        return Scope(self, name)

    def op(self, kind, *inputs, outputs=1, **attributes):
        path = "/" + "/".join(self.scopes + [kind]) if self.scopes else "/" + kind
        number = self.count.get(path, 0)
        self.count[path] = number + 1
        path += f"_{number}" if number else ""
        results = [f"{path}_output_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, name=path, **attributes))
        return results[0] if outputs == 1 else results

    # ---- inputs, weights, constants ----
    def input(self, name, shape, kind=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name, value, shape):
        for node in self.nodes:
            if value in node.output:
                node.output[list(node.output).index(value)] = name
            for at, used in enumerate(node.input):
                if used == value:
                    node.input[at] = name
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def array(self, name, values):
        self.weights.append(numpy_helper.from_array(numpy.ascontiguousarray(values), name))
        return name

    def weight(self, name, *shape, spread):
        return self.array(name, (self.random.standard_normal(shape) * spread).astype(numpy.float32))

    def around(self, name, *shape, centre=1.0, spread=0.1):
        return self.array(name, (centre + self.random.standard_normal(shape) * spread).astype(numpy.float32))

    def fold(self, kind):
        self.folded += 1
        return f"onnx::{kind}_{self.folded}"

    def constant(self, value, kind=numpy.float32):
        return self.op("Constant", value=numpy_helper.from_array(numpy.array(value, kind)))

    def ints(self, *values):
        return self.constant(values, numpy.int64)

    def index(self, value):
        return self.constant(value, numpy.int64)

    # ---- idioms ----
    def conv(self, x, inside, outside, kernel, stride=1, groups=1, bias=None, pad=None, spread=None):
        """`bias`: its name, and that of the weight; None: a batch norm was folded in."""
        fan = inside // groups * kernel * kernel
        spread = (2 / fan) ** 0.5 if spread is None else spread / fan**0.5
        weight = self.weight(bias[0] if bias else self.fold("Conv"), outside, inside // groups, kernel, kernel,
                             spread=spread)
        shift = self.weight(bias[1] if bias else self.fold("Conv"), outside, spread=0.1)
        pad = (kernel - 1) // 2 if pad is None else pad
        return self.op("Conv", x, weight, shift, dilations=[1, 1], group=groups, kernel_shape=[kernel] * 2,
                       pads=[pad] * 4,
                       strides=[stride] * 2)

    def linear(self, x, name, inside, outside, bias=True, spread=1.0):
        """On more than two dimensions: a product with the transposed weight, then bias + product, in this order."""
        product = self.op("MatMul", x, self.weight(self.fold("MatMul"), inside, outside, spread=spread / inside**0.5))
        return self.op("Add", self.weight(name + ".bias", outside, spread=0.1), product) if bias else product

    def gemm(self, x, name, inside, outside):
        weight = self.weight(name + ".weight", outside, inside, spread=1 / inside**0.5)
        return self.op("Gemm", x, weight, self.weight(name + ".bias", outside, spread=0.1), alpha=1.0, beta=1.0,
                       transB=1)

    def layer_norm(self, x, name, width, epsilon):
        return self.op("LayerNormalization", x, self.around(name + ".weight", width),
                       self.weight(name + ".bias", width, spread=0.1),
                       axis=-1, epsilon=epsilon)

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.constant(2**0.5)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.constant(1.0))), self.constant(0.5))

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def size(self, x, axis):
        """x.size(axis) of a dimension that is not known when exporting."""
        return self.op("Gather", self.op("Shape", x), self.index(axis), axis=0)

    def view(self, x, batch, *rest):
        """x.view(batch, *rest), batch being a value."""
        parts = [self.op("Unsqueeze", batch, self.ints(0))] + [self.ints(n) for n in rest]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0), allowzero=0)

    def expand(self, x, size, rank):
        """x.expand(...): where `size` says -1, what x has."""
        ones = self.op("ConstantOfShape", self.ints(rank), value=numpy_helper.from_array(numpy.array([1], numpy.int64)))
        kept = self.op("Equal", size, self.op("Mul", ones, self.index(-1)))
        return self.op("Expand", x, self.op("Where", kept, ones, size))

    def slice(self, x, start, end, axis, step=1):
        return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(axis), self.ints(step))

    def attend(self, q, k, v, mask=None):
        """scaled_dot_product_attention: the scale is taken from the shape of q, its root goes to both sides."""
        last = self.op("Slice", self.op("Shape", q), self.ints(-1), self.ints(INT64_MAX))
        scale = self.op("Div", self.constant([1.0]), self.op("Sqrt", self.op("Cast", last, to=TensorProto.FLOAT)))
        scale = self.op("Cast", scale, to=TensorProto.FLOAT)
        keys = self.op("Transpose", k, perm=[0, 1, 3, 2])
        scores = self.op("MatMul", self.op("Mul", q, self.op("Sqrt", scale)),
                         self.op("Mul", keys, self.op("Sqrt", scale)))
        scores = scores if mask is None else self.op("Add", scores, mask)
        return self.op("MatMul", self.op("Softmax", scores, axis=-1), v)

    # ---- the file ----
    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, producer_name="symplex tests", ir_version=8,
                                 opset_imports=[helper.make_opsetid("", OPSET)])


class Scope:
    def __init__(self, graph, name):
        self.graph, self.name = graph, name

    def __enter__(self):
        self.graph.scopes.append(self.name)

    def __exit__(self, *_):
        self.graph.scopes.pop()
