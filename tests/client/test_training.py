#!/usr/bin/env python3
"""A training step as one program: loss, gradients by `grad`, AdamW, with parameters and moments as state. 200 steps
are compared with numpy's, and with themselves over threads, machines and files; no state is copied."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import numpy as np

BINARY = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin"
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxtraining."))
BATCH, INPUTS, HIDDEN, CLASSES, STEPS = 16, 6, 24, 4, 200
SHAPES = {"w1": (INPUTS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES)}
RATE, BETA1, BETA2, EPS, DECAY = 2.0**-6, 0.875, 0.96875, 2.0**-20, 2.0**-7
FORWARD = f"""sx 1
graph "mlp" {{
    %x = parameter {{name = "x", weight = 0}} : f64[{BATCH}, {INPUTS}]
    %labels = parameter {{name = "labels", weight = 0}} : i64[{BATCH}]
    %w1 = parameter {{name = "w1", weight = 1}} : f64[{INPUTS}, {HIDDEN}]
    %b1 = parameter {{name = "b1", weight = 1}} : f64[{HIDDEN}]
    %w2 = parameter {{name = "w2", weight = 1}} : f64[{HIDDEN}, {CLASSES}]
    %0 = dot_general(%x, %w1) {{lhs_contract = [1], rhs_contract = [0]}} : f64[{BATCH}, {HIDDEN}]
    %1 = broadcast_in_dim(%b1) {{dims = [1]}} : f64[{BATCH}, {HIDDEN}]
    %2 = add(%0, %1) : f64[{BATCH}, {HIDDEN}]
    %3 = tanh(%2) : f64[{BATCH}, {HIDDEN}]
    %4 = dot_general(%3, %w2) {{lhs_contract = [1], rhs_contract = [0]}} : f64[{BATCH}, {CLASSES}]
    %5 = log_softmax(%4) {{axis = 1}} : f64[{BATCH}, {CLASSES}]
    %6 = iota {{axis = 1}} : i64[{BATCH}, {CLASSES}]
    %7 = broadcast_in_dim(%labels) {{dims = [0]}} : i64[{BATCH}, {CLASSES}]
    %8 = compare(%6, %7) {{direction = eq}} : bool[{BATCH}, {CLASSES}]
    %9 = constant {{data = 0}} : f64[{BATCH}, {CLASSES}]
    %10 = select(%8, %5, %9) : f64[{BATCH}, {CLASSES}]
    %11 = reduce(%10) {{dims = [0, 1], reducer = add}} : f64[]
    %12 = negate(%11) : f64[]
    return %12 as "loss"
}}
"""


def sx(*arguments, cwd=None):
    done = subprocess.run([str(BINARY / "symplex-client"), *map(str, arguments)], capture_output=True, text=True,
                          timeout=240, check=False, cwd=cwd or TMP)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def updated(gradient):
    """The text of a program with gradients, with AdamW (Loshchilov and Hutter 2019, algorithm 2) behind it. Weights,
    moments and the powers of the betas become state; the bias is taken off by these powers."""
    lines, node, into = [], {}, []

    def add(name, operation, kind):
        lines.append(f"    %{name} = {operation} : {kind}")
        return f"%{name}"

    def scalar(name, value):
        return add(name, f"constant {{data = {value!r}}}", "f64[]")

    for power, beta in (("power1", BETA1), ("power2", BETA2)):
        old = add(power, f'parameter {{name = "{power}", weight = 0}}', "f64[] state = 1")
        new = add(f"{power}n", f"multiply({old}, {scalar(power + 'c', beta)})", "f64[]")
        left = add(f"{power}l", f"subtract({scalar(power + 'o', 1)}, {new})", "f64[]")
        node[power] = left
        into.append(f'{new} as "{power}" into "{power}"')
    for name, shape in SHAPES.items():
        kind = f"f64[{', '.join(map(str, shape))}]"
        weight, slope = (re.search(pattern, gradient).group(1) for pattern in (
            rf'%(\d+) = parameter {{name = "{name}"', rf'%(\d+) as "grad\({name}\)"'))

        def whole(what, value):
            return add(f"{name}.{what}", f"constant {{data = {value!r}}}", kind)

        def mixed(what, beta, value):
            old = add(f"{name}.{what}", f'parameter {{name = "{name}.{what}", weight = 0}}', f"{kind} state = 0")
            kept = add(f"{name}.{what}k", f"multiply({old}, {whole(what + 'b', beta)})", kind)
            more = add(f"{name}.{what}g", f"multiply({value}, {whole(what + 'r', 1 - beta)})", kind)
            new = add(f"{name}.{what}n", f"add({kept}, {more})", kind)
            into.append(f'{new} as "{name}.{what}" into "{name}.{what}"')
            power = add(f"{name}.{what}p", f"broadcast_in_dim({node['power1' if what == 'm' else 'power2']})", kind)
            return add(f"{name}.{what}h", f"divide({new}, {power})", kind)

        mean = mixed("m", BETA1, f"%{slope}")
        variance = mixed("v", BETA2, add(f"{name}.square", f"multiply(%{slope}, %{slope})", kind))
        root = add(f"{name}.root", f"sqrt({variance})", kind)
        below = add(f"{name}.below", f"add({root}, {whole('eps', EPS)})", kind)
        step = add(f"{name}.step", f"divide({mean}, {below})", kind)
        decay = add(f"{name}.decay", f"multiply(%{weight}, {whole('d', DECAY)})", kind)
        moved = add(f"{name}.moved", f"multiply({add(f'{name}.sum', f'add({step}, {decay})', kind)}, "
                                     f"{whole('rate', RATE)})", kind)
        new = add(f"{name}.new", f"subtract(%{weight}, {moved})", kind)
        into.append(f'{new} as "{name}" into "{name}"')
        data = '"' + START[name].tobytes().hex() + '"'
        gradient, count = re.subn(rf'(name = "{name}", weight =) 1}} : (f64\[[^\]]*\])', rf"\1 0}} : \2 state = {data}",
                                  gradient)
        assert count == 1
    head, loss = re.match(r'(.*)    return (%\d+ as "loss")', gradient, re.S).groups()
    return head + "\n".join(lines) + f"\n    return {loss}, " + ", ".join(into) + "\n}\n"


def slopes(weights, noise):
    """The gradients of the loss by hand, and the loss; `noise` changes each by about one rounding."""
    hidden = noise(np.tanh(noise(X @ weights["w1"]) + weights["b1"]))
    logits = noise(hidden @ weights["w2"])
    logs = logits - logits.max(axis=1, keepdims=True)
    logs = noise(logs - np.log(np.exp(logs).sum(axis=1, keepdims=True)))
    rows = np.arange(BATCH)
    of_logits = np.exp(logs)
    of_logits[rows, LABELS] -= 1
    of_hidden = noise((noise(of_logits) @ weights["w2"].T) * (1 - hidden**2))
    made = {"w1": X.T @ of_hidden, "b1": of_hidden.sum(axis=0), "w2": hidden.T @ of_logits}
    return {name: noise(value) for name, value in made.items()}, -logs[rows, LABELS].sum()


def trained(steps, noise):
    state = {name: value.copy() for name, value in START.items()}
    state.update({f"{name}.{what}": np.zeros(shape) for name, shape in SHAPES.items() for what in "mv"})
    loss = None
    for t in range(1, steps + 1):
        gradient, loss = slopes(state, noise)
        for name, slope in gradient.items():
            state[f"{name}.m"] = noise(BETA1 * state[f"{name}.m"] + (1 - BETA1) * slope)
            state[f"{name}.v"] = noise(BETA2 * state[f"{name}.v"] + (1 - BETA2) * slope**2)
            step = state[f"{name}.m"] / (1 - BETA1**t) / (np.sqrt(state[f"{name}.v"] / (1 - BETA2**t)) + EPS)
            state[name] = noise(state[name] - RATE * (step + DECAY * state[name]))
    return state, loss


def run(*more, module="step.sxm"):
    return sx("run", module, "-i", "x=x.npy", "-i", "labels=labels.npy", *more)


def test_against_numpy():
    """The trajectory may be off by what roundings make of it: numpy's own, run 12 times with each value in between
    moved by up to 4 units in the last place, spreads by that. Ours rounds some 8 times as often, once for each
    operation and not for each line, in another order: 8 times the widest spread of a tensor is allowed."""
    run("--steps", STEPS, "--state-out", "end.npz", "-o", "out")
    exact, loss = trained(STEPS, lambda value: value)
    spread = dict.fromkeys(exact, 0.0)
    for _ in range(12):
        moved, _ = trained(STEPS, lambda value: value * (1 + NOISE.uniform(-4, 4, np.shape(value)) * 2.0**-53))
        spread = {name: max(spread[name], np.abs(moved[name] - exact[name]).max()) for name in exact}
    with np.load(TMP / "end.npz") as end:
        assert sorted(end.files) == sorted([*exact, "power1", "power2"])
        for name, value in exact.items():
            error = np.abs(end[name] - value).max()
            assert error <= 8 * spread[name] < 1e-9, (name, error, spread[name])
            assert np.abs(end[name] - (START[name] if name in START else 0)).max() > 1e-3, name
    first = trained(1, lambda value: value)[1]
    assert loss < first / 10, (first, loss)  # it learns
    assert abs(np.load(TMP / "out" / "loss.npy") - loss) <= 1e-6 * first


def test_against_the_interpreter():
    """Each run is compared with the interpreter, from the state that the runs before it left."""
    before = []
    for _ in range(STEPS):
        told = run("--steps", 1, *before, "--state-out", "part.npz", "--check")
        assert "check    passed" in told, told
        before = ["--state-in", "part.npz"]
    assert (TMP / "part.npz").read_bytes() == (TMP / "end.npz").read_bytes()


def test_same_bits():
    for threads in (1, 2, 3):
        run("--steps", STEPS, "--threads", threads, "--state-out", "again.npz")
        assert (TMP / "again.npz").read_bytes() == (TMP / "end.npz").read_bytes(), threads
    sx("compile", "step.sx", "--no-daemon", "--target", "x86-64-v3", "-o", "least.sxm")
    run("--steps", STEPS, "--state-out", "again.npz", module="least.sxm")
    assert (TMP / "again.npz").read_bytes() == (TMP / "end.npz").read_bytes()


SPLITS = ((16,), (8, 8), (5, 11), (1, 15), (1,) * 16)


def test_batch_splits():
    """What the step computes of a row, its loss and the gradient of its inputs, has the same bits in whatever batch the
    row is, and at any number of threads. (The gradients of weights are sums over the batch, which has to be one.)"""
    text = FORWARD.replace('graph "mlp"', 'graph "mlp" (n in [1, 16])').replace(f"[{BATCH}", "[n")
    rows = '    %13 = reduce(%10) {dims = [1], reducer = add} : f64[n]\n    return %13 as "rows",'
    text = text.replace("    return", rows)
    (TMP / "rows.sx").write_text(text, encoding="utf-8")
    sx("grad", "rows.sx", "--wrt", "x", "--wrt", "w1", "--of", "loss", "-o", "rows_gradient.sx")
    sizes = ",".join(str(n) for n in sorted({n for split in SPLITS for n in split}))
    sx("compile", "rows_gradient.sx", "--no-daemon", "-d", f"n={sizes}", "-o", "rows.sxm")
    for name, value in START.items():
        np.save(TMP / f"{name}.npy", value)
    weights = [part for name in START for part in ("-w", f"{name}={name}.npy")]
    for threads in (1, 3):
        whole = None
        for split in SPLITS:
            parts, at = {"rows": [], "grad(x)": []}, 0
            for n in split:
                np.save(TMP / "part_x.npy", X[at:at + n])
                np.save(TMP / "part_labels.npy", LABELS[at:at + n])
                sx("run", "rows.sxm", "-d", f"n={n}", "-i", "x=part_x.npy", "-i", "labels=part_labels.npy", *weights,
                   "--threads", threads, "--repeat", 1, "-o", "part")
                for name, found in parts.items():
                    found.append(np.load(TMP / "part" / f"{name}.npy"))
                at += n
            joined = [np.concatenate(found).tobytes() for found in parts.values()]
            whole = joined if whole is None else whole
            assert len(joined[1]) == X.nbytes and np.abs(np.concatenate(parts["grad(x)"])).min() > 0
            assert joined == whole, (threads, split)


def test_memory():
    """State is three times the parameters and two powers, and is written in place; temporaries are no more than
    gradients and activations, of which 11 of the two sizes are made."""
    module = json.loads(sx("module", "show", "step.sxm", "--json"))
    stages = {stage["name"]: stage for stage in json.loads(sx("explain", "step.sxm", "--all", "--json"))["stages"]}
    assert stages["state"]["items"] == 0 and stages["state"]["stop"] == "in place", stages["state"]
    parameters = sum(8 * int(np.prod(shape)) for shape in SHAPES.values())
    states = [tensor for tensor in module["tensors"] if tensor["place"] == "state"]
    assert sum(tensor["bytes"] for tensor in states) == 3 * parameters + 2 * 8
    padding = 64 * len(states)
    assert module["state_bytes"] <= 3 * parameters + padding
    activations = 8 * BATCH * (4 * HIDDEN + 7 * CLASSES)
    assert module["arena_bytes"] <= parameters + activations + padding, (module["arena_bytes"], parameters, activations)


if __name__ == "__main__":
    try:
        RNG, NOISE = np.random.default_rng(11), np.random.default_rng(12)
        START = {name: RNG.standard_normal(shape) / 2 for name, shape in SHAPES.items()}
        X = RNG.standard_normal((BATCH, INPUTS))
        LABELS = (X @ RNG.standard_normal((INPUTS, CLASSES))).argmax(axis=1)
        np.save(TMP / "x.npy", X)
        np.save(TMP / "labels.npy", LABELS)
        (TMP / "forward.sx").write_text(FORWARD, encoding="utf-8")
        sx("grad", "forward.sx", "--wrt", "weights", "--of", "loss", "-o", "gradient.sx")
        (TMP / "step.sx").write_text(updated((TMP / "gradient.sx").read_text(encoding="utf-8")), encoding="utf-8")
        sx("compile", "step.sx", "--no-daemon", "-o", "step.sxm")
        test_against_numpy()
        test_against_the_interpreter()
        test_same_bits()
        test_batch_splits()
        test_memory()
    finally:
        shutil.rmtree(TMP)
    print("ok")
