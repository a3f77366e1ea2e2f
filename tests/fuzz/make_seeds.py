#!/usr/bin/env python3
"""Writes the seeds of fuzz_wire, fuzz_onnx, fuzz_snapshot and fuzz_cubin: valid inputs for the fuzzers to start from,
made without the code under test. Seeds of fuzz_module come from sx-seed-modules, those of fuzz_parse are the
programs of tests/golden, those of fuzz_certificate are what the client of $SX_BINARY_DIR proves of the small
ones of tests/golden/egraph (left as they are without that variable).

  make_seeds.py            writes tests/fuzz/seeds
"""
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent / "models"), str(HERE.parent / "daemon"), str(HERE)]
os.environ.setdefault("SX_BINARY_DIR", "/nowhere")
import cubin_seed  # noqa: E402
import make_models as models  # noqa: E402
import wire  # noqa: E402

KEY = bytes(range(32))
PROGRAM = """sx 1
graph "g" (n in [1, 8]) {
  %x = parameter {name = "x", weight = 0} : f32[n]
  %0 = relu(%x) : f32[n]
  return %0 as "y"
}
"""
COMPILE = {"ir": PROGRAM, "target": "x86-64-v3", "dims": {"n": 4},
           "options": {"no_reassociate": True, "disabled_rules": "a,b"},
           "mode": "wait", "refresh": False, "wait_ms": 100}
REQUESTS = [("hello", {"client": "seed"}), ("ping", {"data": b"\0\1\2"}), ("compile", COMPILE), ("optimize", COMPILE),
            ("get", {"key": KEY}), ("wait", {"job": 1, "seq": 2, "wait_ms": 3}), ("cancel", {"job": 1}), ("jobs", {}),
            ("status", {}), ("ready", {}), ("cache.list", {"limit": 5}), ("cache.show", {"key": KEY}),
            ("cache.verify", {}),
            ("cache.evict", {"key": KEY}), ("shutdown", {"fast": True})]
RESULTS = [
    {"key": KEY, "state": "done", "tier": "ram", "cost_us": 5, "coalesced": False, "job": 1, "seq": 1,
     "module": b"SXMODULE"},
    {"job": 1, "key": KEY, "state": "running", "seq": 1,
     "events": [{"seq": 1, "at_ms": 0, "stage": "saturate", "done": 1, "total": 2}]},
    {"boot_id": "b", "now_ms": 1, "data": b"x"},
    {"server": "symplexd", "version": "0", "build": "b", "proto_min": 1, "proto_max": 1, "boot_id": "b", "pid": 1,
     "now_ms": 1,
     "methods": {"ping": 1}, "limits": {"depth": 16}, "features": ["seccomp"]},
]
ERROR = {"code": 3, "name": "INPUT", "msg": "graph: line 3", "hint": "Look there.", "retry": False,
         "where": "parse.c:1"}
MESSAGE, FRAMES = 0, 1


def write(folder, name, data):
    (HERE / "seeds" / folder).mkdir(parents=True, exist_ok=True)
    (HERE / "seeds" / folder / name).write_bytes(data)


ROOT_PROGRAM = """sx 1
graph "p" {
%%0 = parameter {name = "x", weight = 0} : f32[4]
%%1 = multiply(%%0, %%0) : f32[4]
%s
}
"""
# sqrt(x x) = |x|, with the right output, with another one, and with a step that makes it sqrt(-(x x))
ROOT, ABS = '%2 = sqrt(%1) : f32[4]\nreturn %2 as "y"', '%2 = abs(%0) : f32[4]\nreturn %2 as "y"'
NEGATIVE = '%2 = negate(%1) : f32[4]\n%3 = sqrt(%2) : f32[4]\nreturn %3 as "y"'
TERMS = '%2 = sqrt(%1) : f32[4]\n%3 = abs(%0) : f32[4]\n%4 = negate(%1) : f32[4]\n' \
        '%5 = sqrt(%4) : f32[4]\nreturn %2 as "y"'


def root_seed(name, output, step):
    blocks = [ROOT_PROGRAM % ROOT, ROOT_PROGRAM % output, ROOT_PROGRAM % TERMS, step + "\n"]
    write("fuzz_certificate", name, b"p" + "--\n".join(blocks).encode())


def certificate_seeds():
    root_seed("root.apart", ABS, "square-root 2 3 2 1")
    root_seed("root_other_output.apart", NEGATIVE, "square-root 2 3 2 1")
    root_seed("root_wrong_step.apart", NEGATIVE, "square-root 2 5 2 1")
    client_certificate_seeds()


def client_certificate_seeds():
    """As they are written, and apart: without counts, so that a fuzzer may change lengths (fuzz_certificate.c)."""
    client = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "symplex-client"
    if not client.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((HERE.parent / "golden" / "egraph").glob("*.sx")):
            proof = pathlib.Path(folder) / "proof"
            subprocess.run([client, "optimize", source, "--no-daemon", "-o", proof.with_suffix(".sx"), "--proof",
                            proof], check=True, capture_output=True)
            text = proof.read_text()
            if len(text) > 12000:
                continue
            write("fuzz_certificate", source.stem + ".whole", b"c" + text.encode())
            parts = re.fullmatch(r"symplex-proof 1\nparts 1\npart proved\n(.*)end\n", text, re.DOTALL)
            if parts:
                blocks, rest = [], parts.group(1)
                for _ in ("input", "output", "terms"):
                    count, rest = rest.split("\n", 1)
                    size = int(count.split()[1])
                    blocks.append(rest[:size])
                    rest = rest[size:]
                write("fuzz_certificate", source.stem + ".apart",
                      b"p" + "--\n".join(blocks + [rest.split("\n", 1)[1]]).encode())


def wire_seeds():
    for number, (method, args) in enumerate(REQUESTS):
        body = wire.request(number, method, args, {"dl": 1000, "tr": "t"})
        write("fuzz_wire", "request_" + method, bytes([MESSAGE]) + body)
        frame = wire.frame(struct.pack(">I", 0x80000000 | number) + body)
        write("fuzz_wire", "frame_" + method, bytes([FRAMES | 40]) + wire.HELLO_REQ + frame)
    for number, result in enumerate(RESULTS):
        write("fuzz_wire", f"response_{number}", bytes([MESSAGE]) + wire.pack([1, number, None, result]))
    write("fuzz_wire", "response_error", bytes([MESSAGE]) + wire.pack([1, 0, ERROR, None]))
    write("fuzz_wire", "notice", bytes([MESSAGE]) + wire.pack([2, "event", [{"job": 1}]]))
    write("fuzz_wire", "array_bomb", bytes([MESSAGE]) + b"\xdd\xff\xff\xff\xff")
    write("fuzz_wire", "length_claim", bytes([FRAMES]) + wire.HELLO_REQ + b"\x01" + struct.pack(">Q", 1 << 40))
    write("fuzz_wire", "deep", bytes([MESSAGE]) + b"\x91" * 200 + b"\xc0")


def onnx_seeds():
    """The committed models with small extents, and one node of several kinds each."""
    models.MLP_SIZES[:] = [6, 5, 4, 3]
    write("fuzz_onnx", "mlp.onnx", models.make_mlp()[1])
    models.WIDTH, models.HEADS, models.SEQUENCE, models.HIDDEN = 8, 2, 4, 8
    write("fuzz_onnx", "encoder.onnx", models.make_encoder()[1])
    models.CNN_SIDE = 4
    write("fuzz_onnx", "cnn.onnx", models.make_cnn()[1])
    for op, inputs, attributes in (("Conv", ["x", "w"], {}), ("Slice", ["x", "a", "b"], {}),
                                   ("Gather", ["x", "a"], {"axis": 1}),
                                   ("Concat", ["x", "x"], {"axis": 0}), ("Softmax", ["x"], {"axis": -1}),
                                   ("Transpose", ["x"], {"perm": [1, 0]}), ("ReduceSum", ["x", "a"], {"keepdims": 0}),
                                   ("Expand", ["x", "b"], {}), ("Clip", ["x"], {}), ("Split", ["x"], {"axis": 0}),
                                   ("LeakyRelu", ["x"], {"alpha": 0.5})):
        m = models.Model("one", 3)
        m.random("w", [2, 2], 1.0)
        m.ints("a", [0])
        m.ints("b", [2])
        m.node(op, inputs, "y", **attributes)
        write("fuzz_onnx", op.lower() + ".onnx", m.finish([("x", ["n", 4])], [("y", ["n", 4])]))


PAGE, RULES = 4096, bytes(range(32))


def snapshot(nodes, classes, up, reasons, matched, journal, log, roots, choice):
    """An e-graph as core/store/snapshot.h has it, but for the checksums, which the target makes good. A node:
    (op, attr, children)."""
    words = lambda items: struct.pack(f"<{len(items)}I", *items)  # noqa: E731
    live = [c == n or not any(nodes[m][:2] == nodes[n][:2]
                              and [classes[x] for x in nodes[m][2]] == [classes[x] for x in nodes[n][2]]
                              for m in range(n)) for n, c in enumerate(classes)]
    made = [c for node in nodes for c in node[2]]
    section = {0: (8, b"".join(struct.pack("<IHBB", attr, op, len(children), not live[n])
                               for n, (op, attr, children) in enumerate(nodes))),
               1: (4, words([classes[c] for c in made])), 2: (4, words(classes)), 3: (4, words(made)),
               4: (4, words([u for u, _ in up])), 5: (4, words([r for _, r in up])),
               6: (12, b"".join(words(r) for r in reasons)), 7: (4, words(matched)),
               8: (8, b"".join(words(j) for j in journal)), 9: (4, words(log)),
               10: (4, words(roots)), 11: (8, b"".join(words(c) for c in choice))}
    table, body, at = b"", b"", PAGE
    for kind, (item, data) in section.items():
        if data:
            table += struct.pack("<IIQQQ", kind, item, at, len(data), 0)
            body += data + bytes(-len(data) % PAGE)
            at += len(data) + -len(data) % PAGE
    head = struct.pack("<8sIIQQ32sIIIIIIII", b"SXEGRAPH", 0x01020304, 4, at, 0, RULES, len(table) // 32, 0,
                       len(nodes), len(made),
                       len(set(classes)), sum(live), len(journal), 1)
    return (head + table).ljust(PAGE, b"\0") + body


def snapshot_seeds():
    leaf, add, neg, given, congruence = 0, 1, 3, 0xFFFFFFFE, 0xFFFFFFFF
    alone = lambda n: (n, given)  # noqa: E731
    # a + b = b + a by rule 0
    write("fuzz_snapshot", "sum", snapshot(
        [(leaf, 0, []), (leaf, 1, []), (add, 0, [0, 1]), (add, 0, [1, 0])], [0, 1, 2, 2],
        [alone(0), alone(1), (3, 0), alone(3)], [[0, 0, 1]], [2], [[4, 2], [3, 1]], [2, 3], [2],
        [[0, 0], [1, 1], [2, 3]]))
    # a = b makes -a = -b: the second one is dead
    write("fuzz_snapshot", "congruence", snapshot(
        [(leaf, 0, []), (leaf, 1, []), (neg, 0, [0]), (neg, 0, [1])], [0, 0, 2, 2],
        [(1, given), alone(1), alone(2), (2, congruence)], [], [], [[4, 0], [0, 2]], [0, 2], [2], [[0, 1], [2, 2]]))
    write("fuzz_snapshot", "empty", snapshot([], [], [], [], [], [[0, 0], [0, 0]], [], [], []))


def cubin_seeds():
    for name, data in cubin_seed.SEEDS.items():
        write("fuzz_cubin", name + ".cubin", data)


wire_seeds()
onnx_seeds()
cubin_seeds()
snapshot_seeds()
certificate_seeds()
