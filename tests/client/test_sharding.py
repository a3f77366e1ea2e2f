#!/usr/bin/env python3
"""Programs on a mesh through the client: optimize says what is sent and gives the form that sends less, with
its proof; compile leaves placements aside and says so; what the checker of placements refuses is refused."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

import numpy

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
MLP = """sx 1
graph "mlp" (batch in [1, 4096]) mesh (dp = 4, tp = 8) {
    %x = parameter {name = "x", weight = 0} : f32[batch, 512] {dp = S(0)}
    %w1 = parameter {name = "w1", weight = 1} : f32[512, 2048] {tp = S(1)}
    %w2 = parameter {name = "w2", weight = 1} : f32[2048, 512] {tp = S(0)}
    %0 = dot_general(%x, %w1) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 2048]
    %1 = relu(%0) : f32[batch, 2048]
    %2 = dot_general(%1, %w2) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 512]
    return %2 as "y" {dp = S(0)}
}
"""
# (x + y) w with the parts of y on different devices: as x w + y w it sends sixteen columns instead of a thousand
SUM = """sx 1
graph "sum" mesh (tp = 4) {
    %x = parameter {name = "x", weight = 0} : f32[4096, 1024] {tp = S(0)}
    %z = parameter {name = "z", weight = 0} : f32[4, 4096, 1024] {tp = S(0)}
    %w = parameter {name = "w", weight = 1} : f32[1024, 16]
    %0 = reduce(%z) {dims = [0], reducer = add} : f32[4096, 1024]
    %1 = add(%x, %0) : f32[4096, 1024]
    %2 = dot_general(%1, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[4096, 16]
    return %2 as "y" {tp = S(0)}
}
"""


def sx(*arguments, status=0):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, timeout=120, text=True)
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done


def test_mlp(folder):
    path = folder / "mlp.sx"
    path.write_text(MLP)
    plan = json.loads(sx("optimize", path, "--no-daemon", "-d", "batch=256", "--json").stdout)["sharding"]
    assert plan["mesh"] == "dp = 4, tp = 8" and plan["planned"]
    sent = [s for s in plan["steps"] if s["sent_bytes"] > 0]
    assert [(s["what"], s["axis"], s["from"], s["to"]) for s in sent] == [("all-reduce", "tp", "P(sum)", "R")]
    assert plan["collectives"] == 1 and sent[0]["local"] == "f32[64, 512]"
    assert sent[0]["sent_bytes"] == plan["collective_bytes"] == 2 * 7 / 8 * 64 * 512 * 4
    hidden = next(s for s in plan["steps"] if s["what"] == "relu")
    assert hidden["places"] == "{dp = S(0), tp = S(1)}" and hidden["local_bytes"] == 64 * 256 * 4
    told = sx("optimize", path, "--no-daemon", "-d", "batch=256")
    assert "mesh (dp = 4, tp = 8)" in told.stdout and "{dp = S(0)}" in told.stdout  # it reads back
    assert "all-reduce" in told.stderr and "1 collective," in told.stderr
    assert "which 4 pieces do not divide" in sx("optimize", path, "--no-daemon", "-d", "batch=6", status=4).stderr


def test_less_is_sent(folder):
    path, better, proof = folder / "sum.sx", folder / "better.sx", folder / "sum.proof"
    path.write_text(SUM)
    plan = json.loads(sx("optimize", path, "--no-daemon", "--json").stdout)["sharding"]
    assert plan["input_collective_bytes"] == 64 * plan["collective_bytes"] == 0.75 * 4096 * 1024 * 4
    sx("optimize", path, "--no-daemon", "-o", better, "--proof", proof)
    sx("prove", proof)
    again = json.loads(sx("optimize", better, "--no-daemon", "--json").stdout)["sharding"]
    assert again["collective_bytes"] == plan["collective_bytes"] == again["input_collective_bytes"]
    sx("optimize", path, "--no-daemon", "--objective", "pareto", status=4)


def test_one_device(folder):
    path, module = folder / "mlp.sx", folder / "mlp.sxm"
    path.write_text(MLP)
    sx("compile", path, "--no-daemon", "-d", "batch=6", "-o", module)  # no multiple of 4: nothing is cut
    plan = json.loads(sx("explain", module, "--json").stdout)["sharding"]
    assert plan == {"mesh": "dp = 4, tp = 8", "planned": False, "steps": []}
    assert "left aside" in sx("explain", module).stdout
    plain = folder / "plain.sx"
    plain.write_text(MLP.replace(" mesh (dp = 4, tp = 8)", "").replace(" {dp = S(0)}", "")
                     .replace(" {tp = S(1)}", "").replace(" {tp = S(0)}", ""))
    sx("compile", plain, "--no-daemon", "-d", "batch=6", "-o", folder / "plain.sxm")
    assert "sharding" not in json.loads(sx("explain", folder / "plain.sxm", "--json").stdout)


def run_ranks(program, cut):
    """The outputs of all ranks of a local program of two axes, from the text; cut(name, dp, tp) is what a rank has."""
    dp, tp = map(int, re.search(r"mesh \(dp = (\d+), tp = (\d+)\)", program).groups())
    ranks = [(d, t) for d in range(dp) for t in range(tp)]
    value, outputs = {}, {}
    for line in program.splitlines():
        node = re.match(r"\s*(%\w+) = (\w+)(?:\(([^)]*)\))? *(\{.*\})? : (\w+)\[([^]]*)\]", line)
        if node is None:
            for name, label in re.findall(r'(%\w+) as "(\w+)"', line):
                outputs[label] = value[name]
            continue
        name, what, operands, attributes, _, shape = node.groups()
        x = [value[o] for o in operands.split(", ")] if operands else []
        if what == "parameter":
            label = re.search(r'name = "(\w+)"', attributes).group(1)
            made = {r: cut(label, *r) for r in ranks}
        elif what == "dot_general":
            assert "lhs_contract = [1], rhs_contract = [0]" in attributes, line
            made = {r: x[0][r] @ x[1][r] for r in ranks}
        elif what == "relu":
            made = {r: numpy.maximum(x[0][r], 0) for r in ranks}
        else:
            assert what == "all_reduce" and '{reducer = add, along = "tp", ranks = 8}' == attributes, line
            made = {(d, t): sum(x[0][d, k] for k in range(tp)) for d, t in ranks}
        assert all(list(v.shape) == [int(n) for n in shape.split(", ")] for v in made.values()), line
        value[name] = made
    return outputs


def test_program_of_a_rank(folder):
    """Whole numbers, small enough that f32 has every sum: the ranks together have the product's very value."""
    path, local = folder / "mlp.sx", folder / "local.sx"
    path.write_text(MLP)
    sx("sharding", path, "-d", "batch=8", "-o", local)
    program = local.read_text()
    plan = json.loads(sx("optimize", path, "--no-daemon", "-d", "batch=8", "--json").stdout)["sharding"]
    assert re.findall(r"= (all_\w+|reduce_scatter|permute|axis_index)", program) == \
        [s["what"].replace("-", "_") for s in plan["steps"] if s["sent_bytes"] > 0] == ["all_reduce"]
    assert json.loads(sx("sharding", path, "-d", "batch=8", "--json").stdout)["program"] == program
    random = numpy.random.default_rng(int(os.environ.get("SX_SEED", "1"), 0))
    whole = {"x": random.integers(-2, 3, (8, 512)), "w1": random.integers(-2, 3, (512, 2048)),
             "w2": random.integers(-2, 3, (2048, 512))}

    def cut(name, d, t):
        return {"x": lambda v: v[2 * d:2 * d + 2], "w1": lambda v: v[:, 256 * t:256 * t + 256],
                "w2": lambda v: v[256 * t:256 * t + 256]}[name](whole[name])
    y = run_ranks(program, cut)["y"]
    want = numpy.maximum(whole["x"] @ whole["w1"], 0) @ whole["w2"]
    assert all((y[d, t] == want[2 * d:2 * d + 2]).all() for d, t in y)
    for name, array in whole.items():
        numpy.save(folder / f"{name}.npy", array.astype(numpy.float32))
    sx("compile", local, "--no-daemon", "-t", "x86-64-v3", "-o", folder / "local.sxm")  # 32 ranks, as native code
    sx("run", folder / "local.sxm", "-i", f"x={folder}/x.npy,dp:0", "-w", f"w1={folder}/w1.npy,tp:1",
       "-w", f"w2={folder}/w2.npy,tp:0", "-o", folder / "ranks", "-n", 1)
    for rank in range(32):
        assert (numpy.load(folder / "ranks" / f"y@{rank}.npy") == want[rank // 8 * 2:rank // 8 * 2 + 2]).all()


def test_no_program_of_a_rank(folder):
    path, local = folder / "mlp.sx", folder / "again.sx"
    path.write_text(MLP)
    sx("sharding", path, "-d", "batch=8", "-o", local)
    assert "is all_reduce: with collectives it is the program of each device already" in \
        sx("sharding", local, status=4).stderr
    assert 'symbol "batch" has no value' in sx("sharding", path, status=4).stderr
    assert "which 4 pieces do not divide" in sx("sharding", path, "-d", "batch=6", status=4).stderr
    path.write_text('sx 1 graph "plain" { %x = parameter {name = "x", weight = 0} : f32[4] return %x as "y" }')
    assert 'program "plain" has no mesh' in sx("sharding", path, status=4).stderr
    path.write_text('sx 1 graph "kept" mesh (tp = 2) { %k = parameter {name = "cache", weight = 0} : f32[4] state = 0 '
                    '%1 = negate(%k) : f32[4] return %1 as "cache" into "cache" }')
    assert 'parameter "cache" is state' in sx("sharding", path, status=4).stderr


def stack(layers):
    """Two residual blocks a layer, of different width: w1 by columns, w2 by rows."""
    lines = ['sx 1 graph "stack" mesh (tp = 4) {', '%h0 = parameter {name = "x", weight = 0} : f32[64, 128]']
    for i in range(2 * layers):
        n = 512 if i % 2 else 256
        for name, shape, places in (("s", "128", ""), ("t", "128", ""), ("a", f"128, {n}", "{tp = S(1)}"),
                                    ("b", f"{n}", "{tp = S(0)}"), ("c", f"{n}, 128", "{tp = S(0)}"), ("d", "128", "")):
            lines.append(f'%{name}{i} = parameter {{name = "{name}{i}", weight = 1}} : f32[{shape}] {places}')
        lines += [f"%n{i} = layer_norm(%h{i}, %s{i}, %t{i}) {{axis = 1, eps = 1e-5}} : f32[64, 128]",
                  f"%p{i} = dot_general(%n{i}, %a{i}) {{lhs_contract = [1], rhs_contract = [0]}} : f32[64, {n}]",
                  f"%q{i} = broadcast_in_dim(%b{i}) {{dims = [1]}} : f32[64, {n}]",
                  f"%r{i} = add(%p{i}, %q{i}) : f32[64, {n}]", f"%g{i} = gelu(%r{i}) : f32[64, {n}]",
                  f"%u{i} = dot_general(%g{i}, %c{i}) {{lhs_contract = [1], rhs_contract = [0]}} : f32[64, 128]",
                  f"%v{i} = broadcast_in_dim(%d{i}) {{dims = [1]}} : f32[64, 128]",
                  f"%w{i} = add(%u{i}, %v{i}) : f32[64, 128]", f"%h{i + 1} = add(%h{i}, %w{i}) : f32[64, 128]"]
    return "\n".join(lines + [f'return %h{2 * layers} as "y" {{}} }}'])


def test_equal_layers(folder):
    path, proof = folder / "stack.sx", folder / "stack.proof"
    path.write_text(stack(6))
    answer = json.loads(sx("optimize", path, "--no-daemon", "--json", "--proof", proof).stdout)
    assert answer["search"]["uses"] > answer["search"]["parts"], answer["search"]
    assert "mesh (tp = 4)" in answer["program"]
    # each block's sum is sent once, as an all-reduce or as the two halves of one with the norm on pieces between
    assert answer["sharding"]["collective_bytes"] == 12 * 2 * 3 / 4 * 64 * 128 * 4
    proof.write_text(answer["proof"])
    sx("prove", proof)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_mlp(folder)
        test_less_is_sent(folder)
        test_one_device(folder)
        test_equal_layers(folder)
        test_program_of_a_rank(folder)
        test_no_program_of_a_rank(folder)
    print("sharding: one all-reduce, the form that sends less, placements left aside, the program of a rank")


if __name__ == "__main__":
    main()
