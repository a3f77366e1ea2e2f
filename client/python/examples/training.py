"""A training loop as one program: gradients, many examples at once, a scan over batches, random keys."""
import numpy as np

import symplex


def predict(params, x):
    """The network for one example."""
    hidden = np.tanh(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss(params, xs, ys):
    """The mean square error; `vmap` makes the function of one example one of many."""
    away = symplex.vmap(predict, in_axes=(None, 0))(params, xs) - ys
    return np.mean(away * away)


def step(params, batch):
    value, slopes = symplex.value_and_grad(loss)(params, *batch)
    return {name: params[name] - 0.5 * slopes[name] for name in params}, value


# All batches of an epoch by one scan, compiled as one program; the weights stay where they are.
@symplex.jit(donate_argnames="params")
def epoch(params, xs, ys):
    return symplex.scan(step, params, (xs, ys))


# The same key always draws the same numbers; who draws twice splits it.
first, second, third = symplex.random.split(symplex.random.key(7), 3)
params = {"w1": symplex.random.normal(first, (2, 16)), "b1": np.zeros(16, np.float32),
          "w2": symplex.random.normal(second, (16,)) / np.float32(4), "b2": np.zeros((), np.float32)}
xs = symplex.random.uniform(third, (8, 32, 2), minval=-1.0, maxval=1.0)
ys = xs[..., 0] * xs[..., 1]  # a product, which no linear function is

losses = []
for _ in range(60):
    params, values = epoch(params, xs, ys)
    losses.append(float(values.mean()))
print(f"loss {losses[0]:.4f} -> {losses[-1]:.5f}")
assert losses[-1] < losses[0] / 10
assert len(symplex.explain(epoch)) == 1

# A gradient for each example: what one example alone asks of the weights.
each = symplex.jit(symplex.vmap(symplex.grad(lambda p, x, y: (predict(p, x) - y) ** 2), in_axes=(None, 0, 0)))
slopes = each(params, xs[0], ys[0])
assert slopes["w1"].shape == (32, 2, 16)
