#!/usr/bin/env python3
"""Networks as torch.export gives them (tests/data/networks, bf16), for every GPU of the list and one of a file.

    SX_NETWORKS=all test_gpu_networks.py       all of them are compiled and verified, which takes half an hour

Without it one network is, for one GPU, both by the seed (SX_SEED); of the others it is only looked at what their
kernels are. Linear layers are written as products of widened factors with one rounding behind the bias: each is one
kernel that multiplies the factors as they lie, and attention is one kernel, however few its tokens are."""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = str(pathlib.Path(os.environ["SX_BINARY_DIR"]).resolve() / "bin" / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxnetworks."))
FOLDER = ROOT / "tests" / "data" / "networks"
LAYERS = {"bert": 2, "encoder": 2, "gpt2": 2, "llama": 1, "vit": 2}
TARGETS = ["h200", "h100", "a100", "rtx4090", "rtx3090", "generic-sm80", "FILE"]
SEED = int(os.environ.get("SX_SEED", random.randrange(1 << 32)))


def sx(*arguments):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=3000, check=False,
                          env=dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock")), cwd=TMP)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def target_file():
    """The RTX 4090 under a name of its own, as a user describes a device that the table lacks."""
    path = TMP / "mine.target"
    path.write_text(re.sub("^device .*", "device mine", sx("targets", "rtx4090"), flags=re.M))
    return path


def factors(kernel):
    """Element types of what the first contraction of a kernel multiplies; None: it is made inside."""
    whole, code = re.search(r"\{type = (\w+)\[", kernel)[1], re.search(r"code = \[(.*)\]\}\}", kernel)[1].split(", ")
    dot = next(step for step in code if step.startswith("dot "))
    steps = [code[int(number)] for number in dot.split()[1:3]]
    return [(step.split(" : ") + [whole])[1] if step.startswith("arg ") else None for step in steps]


def check_kernels(network, target):
    kernels = [line for line in sx("optimize", FOLDER / (network + ".sx"), "--no-daemon", "-t", target).splitlines()
               if "= fused(" in line]
    online = [line for line in kernels if " online " in line]
    assert len(online) == LAYERS[network], (network, target, online)
    products = [line for line in kernels if " dot " in line]
    assert len(products) > 4 * LAYERS[network], (network, target, kernels)
    for line in products:
        assert factors(line) == ["bf16", "bf16"], (network, target, line)  # f32 takes no matrix instructions


def check_module(network, target):
    module = TMP / "network.sxm"
    sx("compile", FOLDER / (network + ".sx"), "--no-daemon", "-t", target, "-o", module)
    said = json.loads(sx("explain", "--json", module))
    shown = json.loads(sx("module", "show", "--json", module))
    assert said["estimate_ns"] >= said["floor_ns"] > 0, said
    assert all(c["passed"] and c["code"] in ("emulated", "executed") for c in said["checks"]), said["checks"]
    assert any(c["name"].startswith("program as sent") for c in said["checks"]), said["checks"]
    for kernel in shown["kernels"]:
        assert all(c["spills"] == 0 and c["local_bytes"] == 0 for c in kernel.get("cubins", [])), kernel
    print(f"{network}, {target}: {said['estimate_ns'] / 1e3:.1f} us, floor {said['floor_ns'] / 1e3:.2f}, "
          f"{len(shown['kernels'])} kernels", flush=True)


def main():
    print("seed: SX_SEED=%d" % SEED)
    every = [(network, target_file() if target == "FILE" else target) for network in LAYERS for target in TARGETS]
    draw = random.Random(SEED)
    for network in LAYERS:
        check_kernels(network, *draw.sample(TARGETS[:-1], 1))
    for network, target in every if os.environ.get("SX_NETWORKS") == "all" else [draw.choice(every)]:
        check_module(network, target)


if __name__ == "__main__":
    main()
