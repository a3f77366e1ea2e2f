#!/usr/bin/env python3
"""plot roofline: the picture is read with Python's own XML reader; points and roofs lie where the numbers of explain
and targets say, none above its roof, for processors and GPUs, estimated and measured; names of any bytes; what is
refused."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
ENCODER = str(ROOT / "tests" / "models" / "encoder.onnx")
MLP = str(ROOT / "tests" / "models" / "mlp.onnx")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxplot."))
SVG = "{http://www.w3.org/2000/svg}"
PREFIX = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
PIXEL = 0.011  # coordinates have two digits


def sx(*arguments, status=0, **environment):
    surroundings = dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock"))
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, timeout=300, check=False,
                          env=dict(surroundings, **environment), cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def js(*arguments, **more):
    return json.loads(sx(*arguments, "--json", **more).stdout)


def module(name, *words):
    path = TMP / (name + ".sxm")
    if not path.exists():
        sx("compile", *words, "-o", path)
    return path


def processor():
    return module("processor", ENCODER, "--dim", "batch=2", "--target", "x86-64-v3")


def gpu():
    return module("gpu", MLP, "--dim", "batch=4", "--target", "h200")


def axis(svg, letter):
    """From a value to a pixel, by the labels of the first and the last decade."""
    ticks = []
    for text in svg.iter(SVG + "text"):
        if text.get("class") == "small " + letter:
            number, _, prefix = text.text.partition(" ")
            at = float(text.get("x")) if letter == "x" else float(text.get("y")) - 4
            ticks.append((math.log10(float(number) * PREFIX[prefix]), at))
    assert len(ticks) >= 4, ticks
    (low, first), (high, last) = ticks[0], ticks[-1]
    assert [round(t[0] - low, 6) for t in ticks] == list(range(len(ticks))), ticks
    return lambda value: first + (math.log10(value) - low) / (high - low) * (last - first)


def check_picture(svg, numbers):
    """All that the numbers say is in the picture, at its place."""
    x, y = axis(svg, "x"), axis(svg, "y")
    bandwidth = numbers["memory_gb_per_s"]
    lines = {}
    for line in svg.iter(SVG + "line"):
        lines.setdefault(line.get("class"), []).append([float(line.get(k)) for k in ("x1", "y1", "x2", "y2")])
    highest = max(roof["gflop_per_s"] for roof in numbers["roofs"])
    (x1, y1, x2, y2), = lines["roof memory"]
    assert abs(x2 - x(highest / bandwidth)) < PIXEL and abs(y2 - y(highest * 1e9)) < PIXEL
    slope = (y2 - y1) / (x2 - x1)
    at_one = y1 + slope * (x(1) - x1)  # a byte for each operation
    assert abs(at_one - y(bandwidth * 1e9)) < 0.05, (at_one, y(bandwidth * 1e9))
    assert len(lines["roof peak"]) == len(numbers["roofs"])
    for roof, line in zip(numbers["roofs"], lines["roof peak"]):
        assert abs(line[1] - y(roof["gflop_per_s"] * 1e9)) < PIXEL and line[1] == line[3], (roof, line)
        assert abs(line[0] - x(roof["gflop_per_s"] / bandwidth)) < PIXEL, (roof, line)
    shown = [k for k in numbers["kernels"] if "flop_per_byte" in k]
    circles = [c for c in svg.iter(SVG + "circle") if c.get("class") == "point"]
    assert len(shown) == len(circles) > 0, (len(shown), len(circles))
    for kernel, circle in zip(shown, circles):
        cx, cy = float(circle.get("cx")), float(circle.get("cy"))
        intensity, rate = kernel["flops"] / kernel["bytes"], kernel["flops"] / kernel["ns"] * 1e9
        assert abs(cx - x(intensity)) < PIXEL and abs(cy - y(rate)) < PIXEL, (kernel, cx, cy)
        assert 80 <= cx <= 870 and 50 <= cy <= 460, (cx, cy)
        assert abs(float(circle.get("r")) - (3.5 + 14 * math.sqrt(kernel["share"]))) < PIXEL, kernel
        title = circle.find(SVG + "title").text
        assert title.startswith(kernel["name"] + " (" + kernel["kind"] + ")") and kernel["layer"] in title, title
        if numbers["times"] == "estimated":
            assert rate <= min(highest, bandwidth * intensity) * 1e9 * (1 + 1e-9), kernel
            assert cy >= max(y(highest * 1e9), y2 + slope * (cx - x2)) - 2 * PIXEL, kernel
            assert kernel["roof_ns"] <= kernel["ns"], kernel
    assert abs(sum(k["share"] for k in numbers["kernels"]) - 1) < 1e-9


def plotted(path, *words):
    out = TMP / "roofline.svg"
    numbers = js("plot", "roofline", path, "-o", out, *words)
    assert numbers["schema"] == "plot-roofline/1", numbers
    svg = xml.etree.ElementTree.parse(out).getroot()
    check_picture(svg, numbers)
    return numbers, out.read_text()


def test_points_and_roofs_are_those_of_the_module_and_the_device():
    for path, name, cores in ((processor(), "x86-64-v3", 8), (gpu(), "h200", 132)):
        numbers, text = plotted(path)
        assert (numbers["device"], numbers["cores"], numbers["times"]) == (name, cores, "estimated"), numbers
        device, = js("targets", name)["devices"]
        assert numbers["memory_gb_per_s"] == device["memory_bytes_per_ns"]
        told = {rate["gflop_per_s"] for rate in device["rates"]}
        drawn = [roof["gflop_per_s"] for roof in numbers["roofs"]]
        assert set(drawn) <= told and drawn == sorted(drawn, reverse=True), (drawn, told)
        assert all(any(abs(rate - roof) <= 0.006 * rate for roof in drawn) for rate in told), (drawn, told)
        for rate in device["rates"]:  # each type of each unit is named at its roof
            roof = min(numbers["roofs"], key=lambda r: abs(r["gflop_per_s"] - rate["gflop_per_s"]))
            assert any(rate["type"] in part.split() and rate["unit"] in part.split()
                       for part in roof["name"].split(",")), (rate, roof)
        explained = {k["name"]: k for k in js("explain", path)["kernels"]}
        for kernel in numbers["kernels"]:
            own = explained[kernel["name"]]
            assert (own["flops"], own["bytes"]) == (kernel["flops"], kernel["bytes"]), (own, kernel)
            assert abs(own["estimate_ns"] / kernel["ns"] - 1) < 1e-12, (own, kernel)
            assert own["floor_ns"] == kernel["roof_ns"] and not own["prologue"], (own, kernel)
            assert kernel["launches"] <= own["launches"]
        for word in ("<script", "href", "url(", "@import", "http://www.w3.org/1999/xlink"):
            assert word not in text, word
        assert "@media (prefers-color-scheme: dark)" in text and text.count("http") == 1, text[:200]


def test_without_an_output_it_is_printed():
    out = sx("plot", "roofline", processor()).stdout
    assert xml.etree.ElementTree.fromstring(out).tag == SVG + "svg"
    sx("plot", "roofline", processor(), "-o", TMP / "twice.svg")
    assert (TMP / "twice.svg").read_bytes() == out


def test_measured_times():
    path = module("here", ENCODER, "--dim", "batch=2")
    run_json = js("run", path, "--random", "1", "--repeat", "2", "--threads", "2")
    times = TMP / "times.json"
    times.write_text(json.dumps(run_json))
    numbers, _ = plotted(path, "--times", times)
    assert (numbers["times"], numbers["cores"]) == ("measured", 2), numbers
    whole, _ = plotted(path)
    for here, there in zip(numbers["roofs"], whole["roofs"]):
        assert abs(here["gflop_per_s"] * whole["cores"] / 2 / there["gflop_per_s"] - 1) < 1e-12, (here, there)
    by_kernel = {}
    for launch in run_json["launches"]:
        if not launch["prologue"] and launch["kernel"]:
            by_kernel.setdefault(launch["kernel"], []).append(launch["ns"])
    for kernel in numbers["kernels"]:
        if kernel["name"] in by_kernel:
            ns = by_kernel.pop(kernel["name"])
            assert kernel["launches"] == len(ns) and abs(kernel["ns"] * len(ns) / sum(ns) - 1) < 1e-9, (kernel, ns)
    assert not by_kernel, by_kernel

    def refused(text, why):
        times.write_text(text)
        done = sx("plot", "roofline", path, "--times", times, "-o", TMP / "no.svg", status=4)
        assert why in done.stderr.decode() and not (TMP / "no.svg").exists(), done
    refused("", "byte 0: an object expected")
    refused("{}", "0 launches with 0 threads")
    refused(json.dumps(dict(run_json, launches=run_json["launches"][1:])), "that of the module is of")
    refused(json.dumps(dict(run_json, launches=run_json["launches"] * 2)), "more launches than")
    refused(json.dumps(dict(run_json, launches=[dict(run_json["launches"][0], ns=-1)])), "with -1 ns")
    refused(json.dumps(run_json)[:-40], "byte ")
    sx("plot", "roofline", path, "--times", TMP / "absent.json", status=4)


def test_names_of_any_bytes():
    (TMP / "odd.sx").write_text(r'''sx 1
graph "a<b>&\"'\x01\xff\xc3\xa9]]>" {
    %x = parameter {name = "x", weight = 0} : f32[64, 48]
    %w = parameter {name = "w", weight = 0} : f32[48, 32]
    %0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[64, 32]
        from "<script>&\"'\x00\xed\xa0\x80\xf0\x9f\x98\x80" "Mat&Mul" 1
    return %0 as "y"
}
''')
    path = module("odd", TMP / "odd.sx", "--target", "x86-64-v3")
    numbers, text = plotted_raw(path)
    title = xml.etree.ElementTree.fromstring(text).find(SVG + "title").text
    assert title.startswith("a<b>&\"'??\u00e9]]> on x86-64-v3"), title
    titles = [c.find(SVG + "title").text for c in xml.etree.ElementTree.fromstring(text).iter(SVG + "circle")
              if c.get("class") == "point"]
    assert any("of <script>&\"'????\U0001f600: " in t for t in titles), titles


def plotted_raw(path):
    text = sx("plot", "roofline", path).stdout.decode()
    return js("plot", "roofline", path), text


def test_variants_devices_and_what_is_refused():
    def told(why, *words, status=2):
        done = sx("plot", "roofline", *words, status=status)
        assert why in done.stderr.decode(), (words, done)
    path = module("variants", MLP, "--dim", "batch=1,64", "--target", "x86-64-v3")
    one, many = plotted(path, "--dim", "batch=1")[0], plotted(path, "--dim", "batch=64")[0]
    assert one["kernels"][0]["flops"] < many["kernels"][0]["flops"] and "batch=64" in many["title"], (one, many)
    told("dimension batch has no value", path)
    told("dimension batch has another value", path, "--dim", "batch=2")
    told("--dim batch=1..3: only compile takes an interval", path, "--dim", "batch=1..3")
    told("the estimates of the module are for x86-64-v3, not for h100", processor(), "--target", "h100")
    told("exclude each other", processor(), "--target", "h100", "--device", mine())
    told("unknown", processor(), "--target", "z80", status=4)
    own = module("mine", MLP, "--dim", "batch=4", "--device", mine())
    told("which is no row of targets", own)
    assert plotted(own, "--device", mine())[0]["memory_gb_per_s"] == 77
    (TMP / "moves.sx").write_text('sx 1\ngraph "moves" {\n    %x = parameter {name = "x", weight = 0} : f32[64, 48]\n'
                                  '    %0 = transpose(%x) {perm = [1, 0]} : f32[48, 64]\n    return %0 as "y"\n}\n')
    told("there is nothing to plot", module("moves", TMP / "moves.sx", "--target", "x86-64-v3"), status=4)
    told("not a module", MLP, status=4)
    told("needs FILE", status=2)


def mine():
    path = TMP / "mine.device"
    lines = sx("targets", "x86-64-v3").stdout.decode().splitlines()
    lines = ["memory bandwidth 77 GB/s" if line.startswith("memory bandwidth") else line for line in lines]
    path.write_text("\n".join(["device mine", *lines[1:]]) + "\n")
    return path


def test_a_key_of_the_daemon():
    with Daemon(program="symplexd") as daemon:
        environment = {"SYMPLEX_SOCKET": str(daemon.path)}
        made = js("compile", MLP, "--dim", "batch=4", "--target", "x86-64-v3", "-o", TMP / "stored.sxm", **environment)
        assert js("plot", "roofline", made["key"], **environment) == js("plot", "roofline", TMP / "stored.sxm")


def test_estimates_for_a_gpu_are_for_its_own_cores():
    text = sx("explain", gpu()).stdout.decode()
    assert "a run, for 132 cores of h200" in text and "this machine" not in text, text


run(globals())
