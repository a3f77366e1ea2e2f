"""First steps with symplex.jit: a function over NumPy arrays becomes a compiled program."""
import numpy as np

import symplex


# A function over arrays, written with NumPy. It is traced at its first call, once for each structure, shapes and types.
@symplex.jit
def layer(params, x):
    return np.maximum(x @ params["w"] + params["b"], 0)


rng = np.random.default_rng(0)
params = {"w": rng.standard_normal((4, 3)), "b": np.zeros(3)}
x = rng.standard_normal((8, 4))
y = layer(params, x)
assert np.allclose(y, np.maximum(x @ params["w"] + params["b"], 0))

# Another shape is another program; `explain` says so, and where each came from.
layer(params, x[:2])
print(symplex.explain(layer))
assert "x is f64[2, 4], was f64[8, 4]" in symplex.explain(layer)[1].why

# What is compiled can be read, and drawn: `layer.lower(params, x)` is a picture in a notebook.
program = layer.lower(params, x)
assert "dot_general" in program and program.dot().startswith("digraph")


# A program has no elements while it is traced: control flow that depends on them is symplex.cond, while_loop or scan.
@symplex.jit
def newton(a):
    """The square root, as precise as the type."""
    return symplex.while_loop(lambda r: abs(r * r - a) > 1e-12 * a, lambda r: (r + a / r) / 2, a)


assert abs(newton(np.float64(2)) - np.sqrt(2)) < 1e-12

# Python's `if` is an error that says where, and what to do instead.
try:
    symplex.jit(lambda x: x if x.sum() > 0 else -x)(x)
except symplex.TraceError as error:
    print(error)
    assert "symplex.cond" in str(error)
else:
    raise AssertionError("no error")

# Linear algebra is compiled, too; what has no kernel is called on the host, and named.
spectrum = symplex.jit(lambda m: np.linalg.eigh(m @ m.T)[0])
assert np.allclose(spectrum(x), np.linalg.eigvalsh(x @ x.T))
assert symplex.explain(spectrum)[0].host_calls == ("numpy.linalg.eigh",)
