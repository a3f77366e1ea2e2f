"""One module for all batch sizes, and axes that do not mix."""
import numpy as np

import symplex

# `batch` is a dimension of the program: one compile for all values from 1 to 256.
model = symplex.jit(lambda x, w: np.maximum(x @ w, 0) / np.sqrt(x.shape[1]), shapes={"x": ("batch", 16)},
                    dims={"batch": (1, 256)})
rng = np.random.default_rng(0)
w = rng.standard_normal((16, 4))
for batch in (1, 3, 64, 256):
    x = rng.standard_normal((batch, 16))
    assert np.allclose(model(x, w), np.maximum(x @ w, 0) / 4)
print(symplex.explain(model))
assert len(symplex.explain(model)) == 1

# What does not fit is an error that names the dimension.
try:
    model(rng.standard_normal((300, 16)), w)
except symplex.ShapeError as error:
    print(error)
    assert "the dimension batch is 300, allowed are 1 to 256" in str(error)
else:
    raise AssertionError("no error")

# Axes have names, so that those of one length are not mixed up: NumPy would add these.
users, items = symplex.axis("users"), symplex.axis("items")
wrong = symplex.jit(lambda a, b: a + b, shapes={"a": (users,), "b": (items,)})
try:
    wrong(np.ones(5), np.ones(5))
except symplex.TraceError as error:
    print(error)
    assert "axis users (5) meets axis items (5)" in str(error)
else:
    raise AssertionError("no error")
