#!/usr/bin/env python3
"""symplex-client extract as its users meet it: the answer as JSON and as text, checked against the file;
refusals and exit codes."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
GYM = ROOT / "tests" / "data" / "extraction-gym"


def run(*arguments, status=0):
    done = subprocess.run([CLIENT, "extract", *map(str, arguments)], capture_output=True, timeout=60)
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done


def check(path, answer):
    """Re-adds the picked nodes; False on a hole or a cycle."""
    graph = json.loads(path.read_text())
    nodes = graph["nodes"]
    pick = {c["eclass"]: c["node"] for c in answer["choices"]}
    state = {}
    total = 0
    stack = [(root, False) for root in graph["root_eclasses"]]
    while stack:
        eclass, done = stack.pop()
        if done:
            state[eclass] = "done"
            total += nodes[pick[eclass]]["cost"]
            continue
        if state.get(eclass) == "done":
            continue
        assert state.get(eclass) is None, f"{path}: cycle through {eclass}"
        node = nodes[pick[eclass]]
        assert node["eclass"] == eclass
        state[eclass] = "open"
        stack.append((eclass, True))
        for child in node["children"]:
            below = nodes[child]["eclass"]
            assert state.get(below) != "open", f"{path}: cycle through {below}"
            if state.get(below) is None and all(below != c or d for c, d in stack):
                stack.append((below, False))
            elif state.get(below) is None:
                stack.remove((below, False))
                stack.append((below, False))
    assert len(pick) == len(state), (path, len(pick), len(state))
    assert abs(total - answer["dag_cost"]) <= 1e-9 * abs(total), (path, total, answer["dag_cost"])


def test_answers():
    for name in ("fuzz/9.json", "fuzz/37.json", "crafted/multi_root.json", "lean-egg/Stuck_2_1.json",
                 "babble/text_text_ellisk_2019-01-24T21.58.02--bench000_it0.json"):
        answer = json.loads(run(GYM / name, "--json").stdout)
        assert list(answer)[0] == "schema" and answer["schema"] == "extract/1"
        assert answer["proven"] and answer["lower_bound"] == answer["dag_cost"] and answer["stop"] == "proven"
        assert answer["reproducible"] and answer["fuel"] > 0 and "seconds" not in answer
        check(GYM / name, answer)


def test_budgets():
    path = GYM / "egg" / "math_associate_adds.json"
    little = run(path, "--fuel", "2000000", "--json").stdout
    assert little == run(path, "--fuel", "2000000", "--json").stdout, "fuel must give the same bytes"
    answer = json.loads(little)
    assert not answer["proven"] and answer["stop"] == "fuel" and answer["lower_bound"] < answer["dag_cost"] == 13
    check(path, answer)
    slow = GYM / "rover" / "box_filter_3iteration_egraph.json"
    answer = json.loads(run(slow, "--seconds", "0.2", "--json").stdout)
    assert answer["stop"] == "deadline" and not answer["reproducible"] and 0.1 < answer["seconds"] < 20
    check(slow, answer)


def test_text():
    text = run(GYM / "fuzz" / "9.json").stdout.decode()
    assert "dag cost     248.845" in text and "proven least" in text and "CLASS" in text, text
    text = run(GYM / "fuzz" / "9.json", "--seconds", "5").stdout.decode()
    assert " s\n" in text


def test_overflow():
    """2^2000 copies of a leaf: as a tree that is no double, as a program it is 2,001 nodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "g.json"
        nodes = {"n0": {"op": "leaf", "eclass": "c0", "cost": 1}}
        for i in range(1, 2001):
            nodes[f"n{i}"] = {"op": "add", "children": [f"n{i - 1}"] * 2, "eclass": f"c{i}", "cost": 1}
        path.write_text(json.dumps({"nodes": nodes, "root_eclasses": ["c2000"]}))

        def refuse(word):
            raise AssertionError(f"{word} is no JSON")

        answer = json.loads(run(path, "--json").stdout, parse_constant=refuse)
        assert answer["tree_cost"] is None and answer["dag_cost"] == 2001 and answer["proven"], answer
        assert "tree cost    more than 1.79e308" in run(path).stdout.decode()


def test_round_trip():
    """What egraph writes, extracted anew, costs what the optimised program does; nodes without kernels are left out."""
    without = proven = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((ROOT / "tests" / "golden" / "egraph").glob("*.sx")):
            graph = pathlib.Path(folder) / "g.json"
            dims = [f"--dim={name}={low}" for name, low in re.findall(r"(\w+) in \[(\d+), \d+\]", source.read_text())]
            answers = []
            for command in (["optimize", source, "--no-daemon", "--json", *dims], ["egraph", source, "-o", graph]):
                done = subprocess.run([CLIENT, *map(str, command)], capture_output=True, timeout=60)
                assert done.returncode == 0, (command, done.stderr)
                answers.append(done.stdout)
            search = json.loads(answers[0])["search"]
            nodes = json.loads(graph.read_text())["nodes"]
            assert max(node["cost"] for node in nodes.values()) < 1e9, source
            answer = json.loads(run(graph, "--json").stdout)
            gap = abs(search["estimate_ns"] - answer["dag_cost"])
            assert gap <= 1e-9 * answer["dag_cost"] or not (search["proven"] and answer["proven"]), (source, search,
                    answer["dag_cost"])
            proven += search["proven"] and answer["proven"]
            without += sum(node["subsumed"] for node in nodes.values())
            assert all(not nodes[choice["node"]]["subsumed"] for choice in answer["choices"])
    assert without > 0 and proven > 10


def test_refusals():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "g.json"
        for text, part in (("", "byte 0"), ('{"nodes": {"a": {"eclass": "A", "cost": -1}}, "root_eclasses": ["A"]}',
                                            "cost -1"),
                           ('{"nodes": {"a": {"eclass": "A"}}, "root_eclasses": ["B"]}', "root 'B' is no class"),
                           ('{"nodes": {"a": {"eclass": "A", "children": ["a"]}}, "root_eclasses": ["A"]}',
                            "no program")):
            path.write_text(text)
            done = run(path, "--json", status=4)
            error = json.loads(done.stdout)
            assert error["schema"] == "error/1" and part in json.dumps(error), error
    run(GYM / "absent.json", status=4)
    run(GYM / "fuzz" / "9.json", "--seconds", "0", status=2)
    run(GYM / "fuzz" / "9.json", "--seconds", "x", status=2)
    run(GYM / "fuzz" / "9.json", "--fuel", "-1", status=2)


if __name__ == "__main__":
    for name, function in list(globals().items()):
        if name.startswith("test_"):
            function()
            print(name)
