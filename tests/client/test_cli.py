#!/usr/bin/env python3
"""symplex-client as its users meet it: help, exit codes, JSON, and the whole way with the real daemon, on
directories of their own."""
import array
import concurrent.futures
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
sys.path.insert(0, str(ROOT / "tests" / "models"))
import make_models as onnx  # noqa: E402
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
MLP = str(ROOT / "tests" / "models" / "mlp.onnx")
ENCODER = str(ROOT / "tests" / "models" / "encoder.onnx")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxcli."))
NOBODY = str(TMP / "nobody.sock")
TARGETS = ["x86-64-v3", "native"]
TWICE = """sx 1
graph "twice" (n in [1, 4096]) {
    %0 = parameter {name = "x", weight = 0} : f32[n]
    %1 = add(%0, %0) : f32[n]
    return %1 as "y"
}
"""


def sx(*arguments, status=0, socket=None, seconds=60):
    """Runs the client; the finished process. `status` None: any."""
    environment = dict(os.environ, SYMPLEX_SOCKET=str(socket or NOBODY), XDG_STATE_HOME=str(TMP / "state"))
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, env=environment, timeout=seconds,
                          cwd=TMP,
                          stdin=subprocess.DEVNULL)
    if status is not None and done.returncode != status:
        raise AssertionError("%s: exit %d, expected %d\n%s%s" % (" ".join(map(str, arguments)), done.returncode, status,
                                                                 done.stdout[-2000:].decode(),
                                                                         done.stderr[-2000:].decode()))
    return done


def js(*arguments, schema=None, **more):
    """The one object that a command prints with --json; `schema` is its first key."""
    words = 2 if " ".join(map(str, arguments[:2])) in COMMANDS else 1
    done = sx(*arguments[:words], "--json", *arguments[words:], **more)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 1, lines
    value = json.loads(lines[0])
    assert list(value)[0] == "schema" and value["schema"].endswith("/1"), value
    if schema is not None:
        assert value["schema"] == schema + "/1", value["schema"]
    return value


def error_of(*arguments, status, **more):
    return js(*arguments, status=status, schema="error", **more)


def needs(*programs):
    for program in programs:
        assert shutil.which(program), "%s is not installed: run deploy/install-deps.sh" % program


def write_npy(path, values, shape, kind="f"):
    header = "{'descr': '<%s4', 'fortran_order': False, 'shape': (%s), }" % (
        kind, "".join("%d, " % n for n in shape))
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    body = array.array("f" if kind == "f" else "i", values).tobytes()
    path.write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + body)
    return path


def read_npy(path):
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\0"
    length = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + length].decode()
    assert "'descr': '<f4'" in header and "'fortran_order': False" in header, header
    assert (10 + length) % 64 == 0
    shape = tuple(int(n) for n in header.split("(")[1].split(")")[0].replace(",", " ").split())
    return shape, array.array("f", data[10 + length:])


def input_rows(batch):
    """x of the MLP: the same first rows at each batch size."""
    return [((i * 2654435761) % 1000003) / 1000003 * 2 - 1 for i in range(784 * batch)]


def compile_to(name, *arguments, **more):
    path = TMP / name
    return path, js("compile", *arguments, "-o", path, schema="compile", **more)


COMMANDS = [c["name"] for c in json.loads(subprocess.run([CLIENT, "help", "--json"],
                                                         capture_output=True).stdout)["commands"]]
NEEDS_DAEMON = ["cache ls", "cache show", "cache verify", "cache evict", "jobs", "status", "ping", "shutdown"]


# ---- without a daemon ----
def test_help_of_every_command():
    overview = sx("help").stdout.decode()
    assert sx("--help").stdout.decode() == overview and len(COMMANDS) >= 19
    for name in COMMANDS:
        assert "  " + name + " " in overview
        text = sx(*name.split(), "--help").stdout.decode()
        assert text.startswith("usage: symplex-client " + name) and "--json" in text, text
        assert sx("help", *name.split()).stdout.decode() == text
        assert js("help", *name.split(), schema="command")["name"] == name
    assert sx(status=2).stdout.decode() == overview


def test_completion_and_man_page_are_those_of_the_program():
    completion = sx("help", "completion").stdout
    assert completion == (ROOT / "deploy/completion/symplex-client.bash").read_bytes(), \
        "deploy/completion is stale: symplex-client help completion > deploy/completion/symplex-client.bash"
    assert sx("help", "man").stdout == (ROOT / "deploy/man/symplex-client.1").read_bytes(), \
        "deploy/man is stale: symplex-client help man > deploy/man/symplex-client.1"
    script = completion.decode() + """
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _symplex_client; echo "${COMPREPLY[*]}"; }
complete_words symplex-client cache e; complete_words symplex-client com; complete_words symplex-client run --che
complete_words symplex-client cache ls --li
"""
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=TMP, check=True).stdout
    assert out.splitlines() == ["evict", "compile", "--check", "--limit"], out
    needs("groff")
    page = subprocess.run(["groff", "-man", "-Tutf8", "-ww", str(ROOT / "deploy/man/symplex-client.1")],
                          capture_output=True, check=True)
    assert page.stderr == b"", page.stderr


def test_variants():
    """One module for several values of a dimension: run takes the one that is named, and compares it."""
    module = str(TMP / "variants.sxm")
    sx("compile", MLP, "-d", "batch=1,4", "--no-daemon", "-o", module)
    unset = error_of("run", module, "--random", "7", status=2)
    assert "dimension batch has no value" in unset["message"] and "1, 4" in unset["hint"], unset
    other = error_of("run", module, "--random", "7", "-d", "batch=3", status=4)
    assert "extent batch has 3; the module serves 1, 4" in other["message"], other
    for batch in (1, 4):
        ran = json.loads(sx("run", module, "--random", "7", "--check", "-d", f"batch={batch}", "--json").stdout)
        assert ran["check"]["passed"] and ran["check"]["elements"] == 10 * batch, ran
        assert ran["variant"] == f"batch={batch}" and ran["extents"] == {"batch": batch}, ran
    for batch, rows, why in ((None, 4, ""), (None, 3, "extent batch has 3; the module serves 1, 4"),
                             (1, 4, "x.npy is f32[4, 784], the module has f32[1, 784]")):
        x = write_npy(TMP / "x.npy", [1.0] * (rows * 784), [rows, 784])
        given = ["run", module, "-i", f"x={x}", "--random", "7", *(["-d", f"batch={batch}"] if batch else [])]
        if why:
            assert why in error_of(*given, status=4)["message"], (batch, rows)
        else:
            assert json.loads(sx(*given, "--json").stdout)["extents"] == {"batch": rows}, "the file tells the extent"
    told = sx("run", module, "--random", "7", "-d", "batch=4", "-n", "1").stdout
    assert told.startswith(b"variant  batch=4\nrun "), told
    shown = json.loads(sx("module", "show", module, "--json").stdout)
    assert [v["name"] for v in shown["variants"]] == ["batch=1", "batch=4"], shown["variants"]
    assert shown["variants"][1]["guards"] == [{"kind": "equal", "extent": "batch", "value": 4}], shown["variants"]
    assert shown["extents"] == {"batch": "1, 4"} and {v["kind"] for v in shown["launches"]} == {"kernel"}
    assert b"VARIANT  LAUNCHES" in sx("module", "show", module).stdout
    used = [{k["kernel"] for k in shown["launches"][v["first_launch"]:v["first_launch"] + v["launches"]]}
            for v in shown["variants"]]
    assert used[0] != set(range(len(shown["kernels"]))), "a variant with kernels of its own is wanted here"
    screen = sx("explain", module).stdout.decode()
    assert "variants   batch=1: " in screen, screen
    assert f"{len(used[0])} kernels in this variant ({len(used[0] & used[1])} of them in others too; " \
           f"{len(shown['kernels'])} in the module), launched " in screen, screen
    assert b"verified   again just now" in sx("verify", module).stdout


def test_usage_errors():
    def told(part, *arguments):
        error = error_of(*arguments, status=2)
        assert part in error["message"] + " " + error["hint"], error
        assert error["code"] == "USAGE" and error["exit"] == 2 and not error["retry"]
        if arguments != ("help", "man"):
            assert sx(*arguments, status=2).stdout == b""
    told("nearest command is 'compile'", "cmpile", MLP)
    told("nearest command is 'plot'", "plt")
    told("'symplex-client help' lists all commands", "zzz")
    told("behind 'cache' comes one of: ls, show, verify, ", "cache", "list")
    told("no command has the option --nodemon", "--nodemon", "compile", MLP)
    for part, *arguments in (("no command is given", "--socket", NOBODY), ("needs an argument", "--socket"),
                             ("'help' takes no option --socket", "--socket", NOBODY, "help"),
                             ("nearest command is 'compile'", "--no-daemon", "cmpile", MLP)):
        assert part in sx(*arguments, status=2).stderr.decode(), arguments
    told("nearest option is --check", "run", "x.sxm", "--chekc")
    told("nearest option is --target", "compile", MLP, "--tarket=native")
    told("needs an argument", "compile", MLP, "--target")
    told("needs FILE", "compile")
    told("one too many", "compile", MLP, MLP)
    told("takes no option --target", "explain", "x.sxm", "--target", "native")
    told("given twice", "compile", MLP, "-t", "native", "-t", "native")
    told("--dim batch is not of the form", "compile", MLP, "-d", "batch")
    told("--dim batch=64..1: the interval from 64 to 1 holds no value", "compile", MLP, "-d", "batch=64..1")
    told("batch=0..4: '0' is not a whole number", "compile", MLP, "-d", "batch=0..4")
    told("batch=1..x: 'x' is not a whole number", "compile", MLP, "-d", "batch=1..x")
    told("batch=1...4: '.4' is not a whole number", "compile", MLP, "-d", "batch=1...4")
    told("batch=1..4,8: '4,8' is not a whole number", "compile", MLP, "-d", "batch=1..4,8")
    told("not a whole number", "compile", MLP, "-d", "batch=4x")
    told("not a whole number from 1", "compile", MLP, "-d", "batch=0")
    told("not a whole number from 1", "compile", MLP, "-d", "batch=99999999999999999999")
    told("exclude each other", "compile", MLP, "-d", "batch=1", "--no-daemon", "--daemon-only")
    told("either a KEY or --all", "cache", "evict")
    told("at most 103", "ping", "--socket", "/" + "x" * 200)
    told("no JSON form", "help", "man")


def test_options_before_the_command():
    for arguments in (["--socket", NOBODY, "ping"], ["--socket=" + NOBODY, "--json", "ping"],
                      ["--sock", NOBODY, "cache", "ls"],
                      ["--json", "search", "show", "1", "--socket", NOBODY]):
        assert NOBODY in sx(*arguments, status=3).stderr.decode(), arguments
    sx("--no-daemon", "-d", "n=3", "--output", TMP / "before.sxm", "compile", twice())
    sx("compile", "--no-daemon", "-d", "n=3", twice(), "--output", TMP / "behind.sxm")
    assert (TMP / "before.sxm").stat().st_size == (TMP / "behind.sxm").stat().st_size


def twice():
    source = TMP / "early.sx"
    source.write_text(TWICE)
    return source


def test_outputs_are_refused_before_the_work():
    """The program has no value for its symbol: a refusal of the output comes first."""
    for name, why in (("none/a.sxm", "No such file"), ("early.sx/a.sxm", "Not a directory"), (".", "is a folder")):
        for arguments in (["compile", twice(), "-o"], ["optimize", twice(), "-o"], ["optimize", twice(), "--proof"],
                          ["optimize", twice(), "--onnx"], ["egraph", twice(), "-o"]):
            if arguments[0] == "egraph" and name == ".":
                continue
            path = str(TMP / name) + (".dot" if arguments[0] == "egraph" else "")
            error = error_of(*arguments, path, status=4)
            assert path in error["message"] and why in error["message"], error
    module, _ = compile_to("ok.sxm", twice(), "-d", "n=2")
    error = error_of("run", module, "--random", 1, "--output", twice(), status=4)
    assert "is no folder" in error["message"], error
    full = subprocess.run([CLIENT, "optimize", str(twice()), "--no-daemon"], stdout=open("/dev/full", "wb"),
                          stderr=subprocess.PIPE)
    assert full.returncode == 4 and b"standard output" in full.stderr and b"No space" in full.stderr, full
    assert not list(TMP.glob("*.part"))


def test_refused_input():
    def told(part, *arguments, status=4):
        error = error_of(*arguments, status=status)
        assert part in error["message"] + error["hint"], error
    empty, garbage = TMP / "empty.onnx", TMP / "garbage.onnx"
    empty.write_bytes(b"")
    garbage.write_bytes(bytes(range(256)) * 16)
    cut = TMP / "cut.onnx"
    cut.write_bytes(pathlib.Path(MLP).read_bytes()[:100000])
    wrong = TMP / "wrong.sx"
    wrong.write_text(TWICE.replace("add(%0, %0)", "add(%0, %9)"))
    told("nowhere.onnx", "compile", "/nowhere.onnx")
    told("is empty", "compile", empty)
    torch = TMP / "model.pt"
    torch.write_bytes(b"PK\3\4" + bytes(100))
    told("garbage.onnx: neither an ONNX model nor a .sx program", "compile", garbage)
    told("cut.onnx: not a whole ONNX model", "compile", cut)
    told("wrong.sx: line 4", "compile", wrong)
    told("model.pt: neither an ONNX model nor a .sx program, but a zip archive, as PyTorch", "compile", torch)
    told("is a folder", "compile", TMP)
    told("z80", "compile", MLP, "-d", "batch=1", "--target", "z80")
    told("batch", "compile", MLP)
    told("65536", "compile", MLP, "-d", "batch=100000000")
    told("nowhere.sxm", "run", "/nowhere.sxm")
    for name in ("run", "explain", "module show", "module dump", "module check", "verify"):
        told("nowhere.sxm", *name.split(), "/nowhere.sxm")
        told("not a regular file", *name.split(), TMP)


def test_a_fifo_is_refused_and_never_waited_for():
    """Nobody writes to it: who opens it the plain way waits for ever."""
    fifo, model, module = TMP / "fifo", TMP / "beside.sx", TMP / "beside.sxm"
    os.mkfifo(fifo)
    model.write_text(TWICE)
    sx("compile", model, "-d", "n=4", "--no-daemon", "-o", module)
    for arguments in (["compile", fifo, "-o", TMP / "x.sxm"], ["optimize", fifo], ["egraph", fifo],
                      ["extract", fifo], ["prove", fifo],
                      ["run", fifo], ["run", module, "--input", "x=%s" % fifo], ["explain", fifo],
                      *([*name.split(), fifo] for name in ("module show", "module dump", "module check", "ptx show")),
                      ["ptx", "assemble", fifo, "-t", "sm_80"]):
        error = error_of(*arguments, status=4, seconds=20)
        assert "fifo" in error["message"] and "regular file" in error["message"], (arguments, error)


def model(nodes, inputs, outputs, opset=17):
    graph = b"".join(onnx.block(1, n) for n in nodes) + onnx.block(2, "g")
    graph += b"".join(onnx.block(11, v) for v in inputs) + b"".join(onnx.block(12, v) for v in outputs)
    return onnx.integer(1, 8) + onnx.block(8, onnx.block(1, "") + onnx.integer(2, opset)) + onnx.block(7, graph)


def test_everything_that_is_not_supported_at_once():
    """Operators without a meaning here; what reads their results is passed over, what does not is looked at."""
    x, node = onnx.value_info("x", [4]), onnx.node
    path = TMP / "refused.onnx"
    path.write_bytes(model([node("NonZero", ["x"], ["n"], "/a/NonZero"), node("Relu", ["x"], ["r"], "/a/Relu"),
                            node("NonZero", ["r"], ["m"], "/b/NonZero"), node("Add", ["n", "m"], ["s"], "/b/Add"),
                            node("Unique", ["s"], ["u"], "/b/Unique"), node("Relu", ["r"], ["y"], "/c/Relu", wrong=1),
                            node("Unique", ["x"], ["v"], "")], [x], [onnx.value_info("y", [4])]))
    message = error_of("compile", path, status=4)["message"]
    assert message.startswith(str(path) + ": 4 nodes are not supported at opset 17: "), message
    for part in ("NonZero (2: '/a/NonZero', '/b/NonZero'): operator NonZero is not supported",
                 "Relu (1: '/c/Relu'): attribute 'wrong'",
                 "Unique (1: 'v'): operator Unique"):
        assert part in message, message
    assert "/b/Unique" not in message and "Add" not in message, message
    path.write_bytes(model([node("Relu", ["x"], ["r"], "/a/Relu"), node("Unique", ["r"], ["y"], "/b/Unique")], [x],
                           [onnx.value_info("y", [4])]))
    assert "node 1 '/b/Unique' (Unique, opset 17): operator Unique" in error_of("compile", path, status=4)["message"]


def test_no_daemon():
    for name in NEEDS_DAEMON:
        argument = {"cache show": ["abcd"], "cache evict": ["--all"]}.get(name, [])
        error = error_of(*name.split(), *argument, status=3)
        assert error["code"] == "NODAEMON" and NOBODY in error["message"] and error["retry"], error
    error = error_of("compile", MLP, "-d", "batch=1", "--daemon-only", status=3)
    assert NOBODY in error["message"]
    sx("optimize", MLP, "--daemon-only", status=3)


def test_what_needs_no_daemon():
    ops = js("ops", schema="ops")["ops"]
    assert {"dot_general", "softmax", "reduce"} <= {o["name"] for o in ops}
    rules = js("rules", schema="rules")["rules"]
    by_name = {r["name"]: r for r in rules}
    assert len(by_name) == len(rules) > 200
    assert by_name["negate-negate"] == {"name": "negate-negate", "class": "exact", "range": "keeps",
                                        "left": "(negate (negate ?a))", "right": "?a"}
    assert "right" not in by_name["slice-slice"] and "left" not in by_name["lift"]
    assert {r["class"] for r in rules} == {"exact", "reassociating", "approximate"}
    assert sx("rules").stdout.decode().count("\n") == len(rules) + 1
    text = sx("ops").stdout.decode()
    assert all(o["name"] in text for o in ops)
    version = js("version", schema="version")
    assert version["version"] in sx("--version").stdout.decode() and version["toolchain"].startswith("symplexd ")
    doctor = js("doctor", schema="doctor", status=None)
    rows = {f["name"]: f for f in doctor["findings"]}
    assert rows["isa"]["found"] and rows["executable-memory"]["found"] and not rows["daemon"]["found"], rows
    assert {"processor", "cores", "memory", "socket", "state-directory", "isl", "libsodium", "cuda-driver", "nvjitlink",
            "nvrtc", "ptxas", "nccl"} <= set(rows)
    assert doctor["well"] == all(f["found"] for f in rows.values() if f["needed"])
    assert sx("doctor", status=None).returncode == (0 if doctor["well"] else 1)


def test_range():
    """By default no rule moves the range of values in between; with --range any they do, under another key,
    and are named."""
    source = TMP / "quotients.sx"
    source.write_text("""sx 1
graph "quotients" {
    %x = parameter {name = "x", weight = 0} : f32[64]
    %a = parameter {name = "a", weight = 0} : f32[64]
    %b = parameter {name = "b", weight = 0} : f32[64]
    %q = divide(%x, %a) : f32[64]
    %y = divide(%q, %b) : f32[64]
    return %y as "y"
}
""")
    by_name = {r["name"]: r for r in js("rules", schema="rules")["rules"]}
    assert by_name["divide-divide-far"]["range"] == "moves" and by_name["divide-divide-far"]["range_why"]
    keys = {}
    for kind in (None, "keep", "any"):
        out = TMP / ("quotients-%s.sxm" % kind)
        sx("compile", source, "--no-daemon", "-o", out, *(["--range", kind] if kind else []))
        text = sx("explain", out).stdout.decode()
        keys[kind] = next(line.split()[1] for line in text.splitlines() if line.startswith("key "))
        assert ("divide-divide-far (moves)" in text) == (kind == "any"), text
    assert keys[None] == keys["keep"] != keys["any"], keys
    proof = TMP / "quotients.proof"
    sx("optimize", source, "--no-daemon", "--range", "any", "-o", TMP / "better.sx", "--proof", proof)
    steps = {r["name"]: r["class"] for r in js("prove", proof, schema="prove")["rules"]}
    assert steps["divide-divide-far"] == "reassociating, moves", steps
    assert "keep or any" in error_of("compile", source, "--range", "wide", status=2)["message"]


def test_doctor_asks_the_libraries_it_finds():
    """Libraries and a ptxas of the test's own, in front of any real ones."""
    needs("gcc")
    folder = TMP / "fake"
    folder.mkdir()
    sources = {
        "libcuda.so.1": "int cuInit(unsigned f){return (int)f;} int cuDriverGetVersion(int*v){*v=12040;return 0;}",
        "libnvJitLink.so.13": "int nvJitLinkVersion(unsigned*a,unsigned*b){*a=13;*b=7;return 0;}",
        "libnvrtc.so.13": "int nvrtcVersion(int*a,int*b){*a=13;*b=8;return 1;}",
        "libnccl.so.2": "int ncclGetVersion(int*v){*v=22809;return 0;}",
    }
    for name, text in sources.items():
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name)], input=text, text=True,
                       check=True)
    toolkit = folder / "toolkit"
    (toolkit / "bin").mkdir(parents=True)
    ptxas, ran = toolkit / "bin" / "ptxas", folder / "ran"

    driver = folder / "driver.so"

    def rows(version, mode=0o755, which=None, settings=""):
        ptxas.write_text("#!/bin/sh\ntouch '%s'\nexec sleep 600\n# %s\n" % (ran, version))
        ptxas.chmod(mode)
        environment = dict(os.environ, SYMPLEX_SOCKET=NOBODY, LD_LIBRARY_PATH=str(folder),
                           PATH=str(toolkit / "bin") + ":" + os.environ["PATH"], CUDA_HOME=str(toolkit))
        if which is not None:
            driver.unlink(missing_ok=True)
            driver.write_bytes((BINARY.parent / ("cuda-" + which) / "libcuda.so.1").read_bytes())
            driver.chmod(0o600 if settings != "open" else 0o666)
            environment.update(SYMPLEX_CUDA_DRIVER=str(driver), SX_FAKE_CUDA=settings)
        done = subprocess.run([CLIENT, "doctor", "--json"], capture_output=True, env=environment, timeout=30)
        assert not ran.exists(), "doctor ran ptxas"
        return {f["name"]: f for f in json.loads(done.stdout)["findings"]}
    found = rows("Cuda compilation tools, release 12.9, V12.9.86")
    lacking = found["cuda-driver"]
    assert not lacking["found"] and "the CUDA driver has no function cu" in lacking["detail"], found
    assert "gpu" not in found, found
    right = rows("", which="fake", settings="version=12040 gpus=2 capability=86")
    assert right["cuda-driver"]["detail"] == "%s, CUDA 12.4" % driver and right["cuda-driver"]["found"], right
    assert right["gpu"]["detail"] == "2 devices, first Fake 0 (sm_86)" and right["gpu"]["found"], right
    none = rows("", which="fake", settings="gpus=0")
    assert none["cuda-driver"]["found"] and not none["gpu"]["found"] and "no GPU" in none["gpu"]["detail"], none
    old = rows("", which="old")["cuda-driver"]
    assert not old["found"] and "cuOccupancyMaxActiveBlocksPerMultiprocessor" in old["detail"], old
    stranger = rows("", which="fake", settings="open")["cuda-driver"]  # others could write to it
    assert not stranger["found"] and "mode 0666" in stranger["detail"], stranger
    assert found["nvjitlink"]["detail"] == "libnvJitLink.so.13, 13.7"
    assert found["nccl"]["detail"] == "libnccl.so.2, 2.28.9"
    assert found["nvrtc"]["detail"] == "libnvrtc.so.13, version unknown"
    assert found["ptxas"]["detail"] == "%s, not run; version 12.9.86" % ptxas
    for other in ("", "Cuda compilation tools, release ", "Cuda compilation tools, release 12.9, Vx"):
        assert rows(other)["ptxas"]["detail"] == "%s, not run; version unknown" % ptxas, other
    row = rows("", 0o777)["ptxas"]  # others could write to it: this one is not taken
    assert str(ptxas) + "," not in row["detail"], row
    assert row["found"] == os.access("/usr/local/cuda/bin/ptxas", os.X_OK), row


SEED = ROOT / "tests" / "fuzz" / "seeds" / "fuzz_cubin" / "hopper.cubin"


def refused(part, *arguments):
    error = error_of(*arguments, status=4)
    assert part in error["message"], error


def test_ptx_show():
    """The seed is written by tests/fuzz/cubin_seed.py."""
    cubin = js("ptx", "show", SEED, schema="cubin")
    assert (cubin["target"], cubin["tool"], cubin["toolkit"]) == ("sm_90a", "ptxas", "13.0.88"), cubin
    ring = {k["name"]: k for k in cubin["kernels"]}["ring"]
    wanted = {"registers": 154, "registers_max": 224, "frame_bytes": 16, "stack_bytes": 24, "spills": 3,
              "shared_bytes": 4104, "barriers": 5, "mbarriers": 2, "block": [96, 3, 1], "block_max": [],
              "cluster": [2, 1, 1], "cluster_explicit": True, "parameter_bytes": 20192, "code_bytes": 896}
    assert {name: ring[name] for name in wanted} == wanted, ring
    assert [(p["offset"], p["size"]) for p in ring["parameters"]] == [(0, 8), (64, 128), (192, 20000)]
    text = sx("ptx", "show", SEED).stdout.decode()
    assert "sm_90a, 2.8 KiB, by ptxas, CUDA 13.0.88, 2 kernels" in text and "z_second" in text, text
    sx("ptx", "show", SEED, "--on", "h100", "--shared", 232448 - 4104)
    done = sx("ptx", "show", SEED, "--on", "h100", "--shared", 232448 - 4103, status=4)
    assert b"a block of h100 has at most 232448" in done.stderr and b"ring" in done.stdout, done
    assert b"a cluster of 2 blocks" in sx("ptx", "show", SEED, "--on", "a100", status=4).stderr
    refused("nowhere.cubin", "ptx", "show", "/nowhere.cubin")
    refused("no cubin", "ptx", "show", MLP)
    for wrong in (["--shared", "5"], ["--on", "x86-64-v3"], ["--on", "h100", "--shared", "-1"]):
        sx("ptx", "show", SEED, *wrong, status=2)
    refused("h1000", "ptx", "show", SEED, "--on", "h1000")


def test_ptx_assemble_with_assemblers_of_the_test():
    """None; one that crashes in the process that assembles; a program that makes a known cubin."""
    ptx, toolkit, output = TMP / "text.ptx", TMP / "assemblers", TMP / "made.cubin"
    ptx.write_text(".version 8.0\n.target sm_90a\n")
    (toolkit / "bin").mkdir(parents=True)
    (toolkit / "lib").mkdir()
    arguments = ["ptx", "assemble", ptx, "--toolkit", toolkit, "-t", "sm_90a", "-o", output]
    done = sx(*arguments, status=1)
    assert b"neither nvJitLink nor ptxas in %s" % str(toolkit).encode() in done.stderr, done.stderr
    assert b"Install the CUDA toolkit" in done.stderr
    library = str(toolkit / "lib" / "libnvJitLink.so.13")
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], check=True, text=True,
                   input="int nvJitLinkVersion(void) { __builtin_trap(); }")
    done = sx(*arguments, status=6)
    assert b"the compile process died of signal" in done.stderr and b"--with ptxas" in done.stderr, done.stderr
    program = toolkit / "bin" / "ptxas"
    program.write_text("#!/bin/sh\ncat '%s' >/proc/self/fd/4\n" % SEED)
    program.chmod(0o755)
    done = sx(*arguments, "--with", "ptxas", status=4)  # the seed says that it spills
    assert b"failure    spill: kernel ring: 3 instructions" in done.stdout, done.stdout
    assert b"spill: kernel ring" in done.stderr and not output.exists(), done.stderr
    cubin = js(*arguments, "--with", "ptxas", schema="cubin", status=4)
    assert cubin["with"] == "ptxas" and cubin["failures"] == 1 and cubin["findings"][0]["failure"], cubin
    for wrong in (["-t", "h100"], []):
        sx("ptx", "assemble", ptx, *wrong, status=2)
    refused("no assembler gcc", "ptx", "assemble", ptx, "-t", "sm_80", "--with", "gcc")
    refused("nowhere.ptx", "ptx", "assemble", "/nowhere.ptx", "-t", "sm_80")


def test_in_process_says_so_once():
    done = sx("compile", MLP, "-d", "batch=2", "-o", TMP / "a.sxm")
    lines = done.stderr.decode().splitlines()
    assert len([line for line in lines if "compiling in process" in line]) == 1 and NOBODY in lines[0], lines
    assert done.stdout == b""
    never = sx("compile", MLP, "-d", "batch=2", "--no-daemon", "-o", TMP / "b.sxm")
    assert b"no daemon" not in never.stderr
    tables = [js("module", "show", TMP / name, schema="module") for name in ("a.sxm", "b.sxm")]
    assert tables[0] == tables[1]
    default = sx("compile", TMP / "twice.sx", status=4)
    assert b"twice.sx" in default.stderr


def test_text_program_round_trip():
    source = TMP / "twice.sx"
    source.write_text(TWICE)
    for count in (1, 7, 1000):
        values = [((i * 7919) % 1009 - 500) / 16 for i in range(count)]
        module, _ = compile_to("twice.sxm", source, "-d", "n=%d" % count, "-t", "x86-64-v3")
        x = write_npy(TMP / "x.npy", values, [count])
        run = js("run", module, "--input", "x=%s" % x, "--output", TMP / "out", "--check", "--threads", 2, schema="run")
        assert run["check"]["passed"] and run["check"]["elements"] == count and run["threads"] == 2
        shape, y = read_npy(TMP / "out" / "y.npy")
        assert shape == (count,) and list(y) == [2 * v for v in values]
    assert sx("compile", source, "-d", "n=3").stderr.decode().splitlines()[-1].startswith("twice.sxm: ")
    assert (TMP / "twice.sxm").exists()
    text = sx("optimize", source).stdout.decode()
    assert text.startswith("sx 1\n") and "fused" in text
    better = TMP / "better.sx"
    sx("optimize", source, "-o", better)
    assert better.read_text() == text and js("optimize", source, schema="optimize")["program"] == text
    compile_to("again.sxm", better, "-d", "n=5")
    report = js("optimize", source, schema="optimize")
    assert report["search"]["stop"] == "saturated" and report["search"]["classes"] > 0
    assert any(rule["name"] == "lift" and rule["matches"] > 0 for rule in report["rules"])


def stack(layers):
    """Equal layers of 14 operations, each with weights of its own."""
    lines, last = ['    %x = parameter {name = "x", weight = 0} : f32[8, 8]'], "x"
    for layer in range(layers):
        lines.append('    %%w%d = parameter {name = "w%d", weight = 1} : f32[8, 8]' % (layer, layer))
        name = "v%d" % layer
        lines.append("    %%%s_0 = dot_general(%%%s, %%w%d) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], "
                     "rhs_contract = [0]} : f32[8, 8]" % (name, last, layer))
        for i in range(1, 13):
            op = ("tanh", "negate", "relu", "sqrt")[(i * i + i // 3) % 4]
            lines.append("    %%%s_%d = %s(%%%s_%d) : f32[8, 8]" % (name, i, op, name, i - 1))
        lines.append("    %%%s = add(%%%s_12, %%%s) : f32[8, 8]" % (name, name, last))
        last = name
    return 'sx 1\ngraph "stack" {\n%s\n    return %%%s as "y"\n}\n' % ("\n".join(lines), last)


def test_equal_layers_are_searched_once():
    source, found = TMP / "stack.sx", {}
    for layers in (6, 12):
        source.write_text(stack(layers))
        found[layers] = js("optimize", source, schema="optimize")["search"]
    assert found[6]["parts"] == found[12]["parts"] < 4 and found[6]["nodes"] == found[12]["nodes"], found
    assert found[12]["uses"] == found[6]["uses"] + 6 >= 12, found
    module, _ = compile_to("stack.sxm", source)
    assert "distinct, used %d times" % found[12]["uses"] in sx("explain", module).stdout.decode()
    alone = js("optimize", TMP / "twice.sx", schema="optimize")["search"]
    assert alone["parts"] == alone["uses"] == 1 and "distinct, used" not in sx("explain",
            TMP / "twice.sxm").stdout.decode()


def test_prove():
    source, better, proof = TMP / "twice.sx", TMP / "better.sx", TMP / "twice.proof"
    sx("optimize", source, "-o", better, "--proof", proof)
    shown = js("prove", proof, "--from", source, "--to", better, schema="prove")
    assert shown["holds"] and shown["steps"] == sum(rule["steps"] for rule in shown["rules"]) > 0
    assert js("optimize", source, schema="optimize")["proof"] == proof.read_text()
    evaluated = shown["evaluated"]
    assert evaluated["steps"] == shown["steps"] and evaluated["deviation"] < 1e-9, evaluated
    assert evaluated["outputs"] == evaluated["of_outputs"] > 0, evaluated
    text = sx("prove", proof).stdout.decode()
    assert "holds: " in text and "evaluated: %d of %d steps" % (shown["steps"], shown["steps"]) in text, text
    assert "not the program the proof ends at" in error_of("prove", proof, "--to", source, status=4)["message"]
    text = proof.read_text()
    steps = text.index("\nsteps ")
    first = text.index("\n", steps + 1)
    (TMP / "short.proof").write_text(text[:steps] + "\nsteps 0\nend\n")
    assert "is not shown to be equal" in error_of("prove", TMP / "short.proof", status=4)["message"]
    (TMP / "cut.proof").write_text(text[:first])
    error_of("prove", TMP / "cut.proof", status=4)
    error_of("prove", source, status=4)
    (TMP / "empty.proof").write_bytes(b"")
    error_of("prove", TMP / "empty.proof", status=4)
    error_of("prove", TMP / "absent.proof", status=4)


TRADE = """sx 1
graph "trade" {
  %x = parameter {name = "x", weight = 0} : f32[1024, 512]
  %a = erf(%x) : f32[1024, 512]
  %b = tanh(%a) : f32[1024, 512]
  %c = erf(%b) : f32[1024, 512]
  %d = tanh(%c) : f32[1024, 512]
  %e = erf(%d) : f32[1024, 512]
  %f = tanh(%e) : f32[1024, 512]
  %r0 = reduce(%f) {dims = [0], reducer = add} : f32[512]
  %r1 = reduce(%f) {dims = [1], reducer = add} : f32[1024]
  %g = multiply(%f, %f) : f32[1024, 512]
  %r2 = reduce(%g) {dims = [1], reducer = add} : f32[1024]
  %r3 = reduce(%g) {dims = [0], reducer = add} : f32[512]
  return %r0 as "r0", %r1 as "r1", %r2 as "r2", %r3 as "r3"
}
"""


def test_front():
    source, picture, small = TMP / "trade.sx", TMP / "front.svg", TMP / "small.sx"
    source.write_text(TRADE)
    asked = ("optimize", source, "-t", "x86-64-v3", "--objective", "pareto")
    points = js(*asked, schema="optimize")["points"]
    assert len(points) >= 2
    for faster, smaller in zip(points, points[1:]):
        assert faster["estimate_ns"] < smaller["estimate_ns"] and faster["peak_bytes"] > smaller["peak_bytes"]
    assert "estimates for 8 cores of x86-64-v3" in sx(*asked).stderr.decode()
    lines = sx(*asked).stdout.decode().splitlines()
    assert len(lines) == 1 + len(points) and lines[0].split() == ["POINT", "TIME", "US", "PEAK", "BYTES", "ENERGY",
            "UJ"]
    sx(*asked, "-o", picture)
    assert picture.read_text().count("<circle") == len(points) and picture.read_text().endswith("</svg>\n")
    sx(*asked, "--point", 2, "-o", small)
    assert small.read_text() == points[1]["program"]
    error_of(*asked, "--point", len(points) + 1, status=2)
    error_of("optimize", source, "--point", 1, status=2)
    assert "--dim batch=N" in error_of("optimize", MLP, "--objective", "pareto", status=4)["hint"]
    broken = TMP / "broken.sx"
    broken.write_bytes(source.read_bytes()[:12] + b"\0" + source.read_bytes()[12:])
    assert "line 2:" in error_of("optimize", broken, status=4)["message"]  # it is text, not ONNX
    assert "expected time, memory, energy or pareto" in error_of("optimize", source, "--objective", "size",
            status=4)["message"]
    assert "pareto" in error_of("compile", source, "--objective", "pareto", status=4)["message"]


def test_egraph():
    source, graph, picture, dots = TMP / "twice.sx", TMP / "g.json", TMP / "g.svg", TMP / "g.dot"
    search = js("optimize", source, schema="optimize")["search"]
    raw = json.loads(sx("egraph", "--json", source).stdout)
    sx("egraph", source, "-o", graph)
    assert raw == json.loads(graph.read_text())
    assert len(raw["nodes"]) == search["nodes"] and len(raw["class_data"]) == search["classes"]
    for node in raw["nodes"].values():
        assert node["eclass"] in raw["class_data"] and all(child in raw["nodes"] for child in node["children"])
    found = js("extract", graph, schema="extract") # what another tool would find in it is what was extracted
    assert found["proven"] and abs(found["dag_cost"] - search["estimate_ns"]) < 0.01
    sx("egraph", source, "-o", picture)
    shapes = xml.etree.ElementTree.parse(picture).getroot()
    boxes = [shape for shape in shapes if shape.tag.endswith("rect")]
    assert len(boxes) == 1 + search["classes"] # and the background
    sx("egraph", source, "-o", dots)
    assert dots.read_text().count("subgraph cluster_") == search["classes"]
    assert sx("egraph", source).stdout == dots.read_bytes()
    sx("egraph", ENCODER, "-o", TMP / "encoder.json") # rules that pick members of classes
    assert len(json.loads((TMP / "encoder.json").read_text())["nodes"]) > 500
    error_of("egraph", source, "-o", TMP / "g.txt", status=2)
    error_of("egraph", TMP / "absent.sx", status=4)
    error_of("egraph", "abcdef", status=3)


def test_run_refuses():
    def told(part, *arguments, status):
        error = error_of("run", TMP / "twice.sxm", *arguments, status=status)
        assert part in error["message"], error
    source = TMP / "twice.sx"
    source.write_text(TWICE)
    compile_to("twice.sxm", source, "-d", "n=4", "-t", "x86-64-v3")
    told("input x is not given", status=2)
    told("none of that name", "--input", "z=%s" % (TMP / "x.npy"), status=2)
    told("not of the form", "--input", "x", status=2)
    told("f32[5]", "--input", "x=%s" % write_npy(TMP / "five.npy", [0] * 5, [5]), status=4)
    told("i32[4]", "--input", "x=%s" % write_npy(TMP / "ints.npy", [0] * 4, [4], "i"), status=4)
    told("nowhere.npy", "--input", "x=/nowhere.npy", status=4)
    told("not a whole number", "--random", "1", "--threads", "0", status=2)


def test_altered_modules():
    source = TMP / "twice.sx"
    source.write_text(TWICE)
    module, _ = compile_to("twice.sxm", source, "-d", "n=4", "-t", "x86-64-v3")
    data = module.read_bytes()
    assert js("module", "check", module, schema="module_check")["valid"]
    bad = TMP / "bad.sxm"
    for change in (data[:-1], data[:100], data[:64], b"SX", data + b"x", b"\x7fELF" + data[4:]):
        bad.write_bytes(change)
        for command in (["run", "--random", "1"], ["explain"], ["module", "show"], ["module", "check"],
                        ["module", "dump"]):
            error = error_of(*command, bad, status=4)
            assert error["code"] == "CORRUPT", error
    code = next(line for line in sx("module", "show", module).stdout.decode().splitlines() if " map " in line)
    assert "KERNEL" not in code
    jump = data.rindex(b"\xc3")  # a return in the code section becomes a software interrupt
    bad.write_bytes(data[:jump] + b"\xcc" + data[jump + 1:])
    error_of("module", "check", bad, status=4)
    bad.write_bytes(b"")
    error_of("run", bad, status=4)


def test_estimates_are_for_the_cores_at_hand():
    module, _ = compile_to("cores.sxm", ENCODER, "-d", "batch=8")

    def explained(cores, *more, state="state"):
        environment = dict(os.environ, SYMPLEX_SOCKET=NOBODY, XDG_STATE_HOME=str(TMP / state))
        return subprocess.run([CLIENT, "explain", str(module), *more], capture_output=True, env=environment, check=True,
                              preexec_fn=lambda: os.sched_setaffinity(0, cores), text=True).stdout
    usable = sorted(os.sched_getaffinity(0))
    one = json.loads(explained(usable[:1], "--json"))
    assert one["estimated_for"]["cores"] > 1 and one["estimated_for"]["cores_here"] == 1
    assert one["estimate_here_ns"] > 2 * one["estimate_ns"] and one["floor_here_ns"] > 2 * one["floor_ns"], one
    assert one["estimate_here_ns"] >= one["floor_here_ns"]
    assert " a run on the 1 core of this machine; " in explained(usable[:1]) + explained(usable[:1], "--all")
    if len(usable) > 1 and one["estimated_for"]["cores"] != 2:
        two = json.loads(explained(usable[:2], "--json"))
        assert 1.5 < one["estimate_here_ns"] / two["estimate_here_ns"] <= 2.01, (one, two)
    stranger = json.loads(explained(usable[:1], "--json", state="another"))
    assert "estimate_here_ns" not in stranger and stranger["estimate_ns"] == one["estimate_ns"]
    assert " a run, for " in explained(usable[:1], state="another")


def test_explain_and_dump():
    module, made = compile_to("mlp.sxm", MLP, "-d", "batch=4")
    explained = js("explain", module, schema="explain")
    assert explained["key"] == made["key"] and explained["extents"] == {"batch": 4}
    assert [s["name"] for s in explained["stages"]][:2] == ["parse", "saturate"]
    assert all(s["stop"] for s in explained["stages"]) and any(s["fuel"] > 0 for s in explained["stages"])
    assert explained["rewrites"] and all(r["rule"] and r["before"] != r["after"] for r in explained["rewrites"])
    kernels = explained["kernels"]
    assert len([k for k in kernels if not k["prologue"]]) == 4, kernels  # three layers and the softmax
    assert all(k["estimate_ns"] >= k["floor_ns"] > 0 for k in kernels)
    assert all(k["legal"].startswith("program proven") for k in kernels if not k["prologue"])
    assert explained["estimate_ns"] >= explained["floor_ns"] > 0
    assert explained["estimate_ns"] <= explained["input_estimate_ns"]
    assert explained["checks"] and all(c["passed"] and c["error"] <= c["tolerance"] for c in explained["checks"])
    text = sx("explain", "--all", module).stdout.decode()
    for part in ("STAGE", "saturate", "rewrites", "RATIO", "NUMERICS", "program proven", "CHECK", "roofline floor"):
        assert part in text, part
    machine = explained["estimated_for"]
    assert machine["name"].startswith("x86-64-v") and machine["cores_here"] == len(os.sched_getaffinity(0)), machine
    for shown in (text, sx("explain", module).stdout.decode()):
        assert "%d cores of %s at" % (machine["cores"], machine["name"]) in shown
    folder = TMP / "dumped"
    dumped = js("module", "dump", module, "-o", folder, schema="module_dump")
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert dumped["files"] == len(files) and dumped["bytes"] == sum(p.stat().st_size for p in files)
    manifest = (folder / "manifest.txt").read_text()
    assert all(str(p.relative_to(folder)) in manifest for p in files if p.name != "manifest.txt")
    shown = js("module", "show", module, schema="module")
    assert (folder / "code.bin").stat().st_size == shown["code_bytes"]
    assert read_npy(folder / "weights" / "002_fc0_bias.npy")[0] == (512,)
    sx("compile", folder / "program.sx", "-d", "batch=4", "--no-daemon", "-o", TMP / "from_text.sxm")
    assert js("explain", TMP / "from_text.sxm")["key"] == made["key"]
    parts = sorted(folder.glob("kernels/*.s"))
    assert len(parts) == sum(len(k["parts"]) for k in shown["kernels"])
    needs("as", "objcopy")
    for part in parts:
        subprocess.run(["as", str(part), "-o", str(TMP / "k.o")], check=True)
        subprocess.run(["objcopy", "-O", "binary", "-j", ".text", str(TMP / "k.o"), str(TMP / "k.bin")], check=True)
        assert (TMP / "k.bin").read_bytes() == part.with_suffix(".bin").read_bytes(), part
    assert "vfmadd" in parts[1].read_text()


def test_what_the_copy_engine_reads():
    """Of a module by hand (tests/lib/gen_boxes.h)."""
    module, folder = ROOT / "tests" / "fuzz" / "seeds" / "fuzz_module" / "boxes.sxm", TMP / "boxes"
    maps = [{"argument": 0, "element": "f32", "offset": 160, "dims": [40, 20], "dim_numbers": [0, 0],
             "stride_bytes": [4, 160], "box": [32, 8],
             "swizzle_bytes": 128, "promoted_bytes": 256}]
    sx("module", "dump", module, "-o", folder)
    assert json.loads((folder / "kernels.json").read_text())["kernels"][0]["launch"][0]["maps"] == maps
    assert js("module", "show", module, schema="module")["kernels"][0]["parts"][0]["maps"] == maps
    assert "copies     argument 0: f32 20 x 40 in boxes of 8 x 32, swizzled by 128 bytes" in \
        sx("explain", "--all", module).stdout.decode()


def residual_network(blocks):
    """Convolution, normalisation, ReLU, again without ReLU, addition, ReLU: as PyTorch exports a residual
    network, and its nodes' names."""
    made, inits, names, last, c = [], [], [], "x", 4

    def weight(name, dims, low=0.0):
        count = 1
        for d in dims:
            count *= d
        raw = struct.pack("<%df" % count, *(low + ((i * 7919 + len(name)) % 1009 - 504) / 5040 for i in range(count)))
        inits.append(onnx.tensor(name, dims, onnx.FLOAT, raw))
        return name

    def add(op, inputs, path, **attributes):
        names.append((path, op))
        made.append(onnx.node(op, inputs, [path + "_output"], path, **attributes))
        return path + "_output"

    for b in range(blocks):
        value = last
        for half in (1, 2):
            at = "/layer%d/%%s%d" % (b, half)
            w = weight("layer%d.conv%d.weight" % (b, half), [c, c, 3, 3])
            value = add("Conv", [value, w], (at % "conv") + "/Conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            bn = [weight("layer%d.bn%d.%s" % (b, half, part), [c], low)
                  for part, low in (("weight", 1.0), ("bias", 0.0), ("mean", 0.0), ("var", 1.0))]
            value = add("BatchNormalization", [value, *bn], (at % "bn") + "/BatchNormalization", epsilon=1e-5)
            value = add("Relu", [value], (at % "relu") + "/Relu") if half == 1 else value
        last = add("Relu", [add("Add", [value, last], "/layer%d/Add" % b)], "/layer%d/Relu" % b)
    graph = b"".join(onnx.block(1, n) for n in made) + onnx.block(2, "residual") + b"".join(onnx.block(5, i)
            for i in inits)
    graph += onnx.block(11, onnx.value_info("x", [1, c, 8, 8])) + onnx.block(12, onnx.value_info(last, [1, c, 8, 8]))
    return onnx.integer(1, 8) + onnx.block(8, onnx.block(1, "") + onnx.integer(2, 17)) + onnx.block(7, graph), names


def test_explain_on_one_screen():
    """In the names of the model, grouped, at most 50 lines however many layers; --all and --json have the rest."""
    path, seen = TMP / "residual.onnx", {}
    for blocks in (2, 24):
        bytes_, names = residual_network(blocks)
        path.write_bytes(bytes_)
        module, _ = compile_to("residual.sxm", path, "--no-daemon")
        text = sx("explain", module).stdout.decode()
        lines = text.splitlines()
        assert len(lines) <= 50 and all(len(line) <= 200 for line in lines), (len(lines), max(map(len, lines)))
        explained = js("explain", module, schema="explain")
        launches = [launch for launch in explained["launches"] if not launch["prologue"]]
        assert len(launches) == sum(k["launches"] for k in explained["kernels"] if not k["prologue"]), blocks
        told = {(n["name"], n["op"]) for launch in explained["launches"] for n in launch["nodes"]}
        assert told <= set(names), told - set(names)
        missing = {name for name in set(names) - told if name[1] in ("Conv", "Add", "Relu")}
        assert not missing, missing
        # each launch that does the work of a convolution does that of its own layer's, and says so on the screen
        for launch in launches:
            layers = {n["name"].split("/")[1] for n in launch["nodes"]}
            assert len(layers) == 1, launch
        table = lines[next(i for i, line in enumerate(lines) if line.startswith("TIMES")) + 1:]
        first = table[0].split()
        rows = [line.split(None, 3) for line in table[:table.index("")]]
        assert any(r[1:3] == ["contraction", "run"] and r[3].startswith("Conv BatchNormalization Relu ")
                   and r[0] == str(blocks)
                   for r in rows), rows
        assert int(first[0]) > 0 and "Conv" in table[0] and "/layer" in table[0], table[0]
        assert "estimate" in text and "cores of x86-64-v" in text and "verified" in text
        seen[blocks] = len(lines)
        assert len(sx("explain", "--all", module).stdout.splitlines()) > 2 * len(lines)
    assert seen[24] <= seen[2] + 14, seen


def test_run_tells_times_by_kernel_and_layer():
    path = TMP / "residual.onnx"
    bytes_, names = residual_network(6)
    path.write_bytes(bytes_)
    module, _ = compile_to("residual.sxm", path, "--no-daemon")
    ran = js("run", module, "--random", 1, "--check", "-n", 2, schema="run")
    layers = {launch["layer"] for launch in ran["launches"]}
    assert {name for name, op in names if op == "Conv"} <= layers <= {name for name, _ in names}, layers
    assert ran["waited_ns"] >= ran["load_ns"] + ran["runs_ns"] + ran["check"]["ns"], ran
    assert ran["runs_ns"] >= ran["first_ns"] > 0, ran
    text = sx("run", module, "--random", 1, "-n", 2).stdout.decode()
    head, table = text.split("\n\n")
    rows = [line.split(None, 7) for line in table.splitlines()[1:]]
    assert "waited " in head and 0 < len(rows) <= 11, text
    assert sum(int(row[2]) for row in rows) == len([launch for launch in ran["launches"]
                                                    if not launch["prologue"]]), text
    assert any("/layer0/conv1/Conv and 5 more" in row[7] for row in rows), text
    times = [float(row[0]) for row in rows]
    assert times == sorted(times, reverse=True), times
    every = sx("run", module, "--random", 1, "-n", 2, "--all").stdout.decode().split("\n\n")[1]
    assert len(every.splitlines()) == 1 + len(ran["launches"])


def test_times_are_what_the_user_waited():
    source = twice()
    start = time.monotonic()
    made = js("compile", source, "-d", "n=7", "-o", TMP / "t.sxm", "--no-daemon", schema="compile")
    elapsed_us = (time.monotonic() - start) * 1e6
    assert 0 < made["compile_us"] <= made["waited_us"] <= elapsed_us, (made, elapsed_us)
    said = sx("compile", source, "-d", "n=7", "-o", TMP / "t.sxm", "--no-daemon").stderr.decode()
    assert "compiled in process; waited " in said and ", compiling took " in said, said


def on_terminal(*arguments):
    """What the command says on a terminal of its own, and what it prints elsewhere."""
    ours, theirs = pty.openpty()
    printed = open(TMP / "printed", "w+b")
    process = subprocess.Popen([CLIENT, *map(str, arguments)], stdout=printed, stderr=theirs, stdin=subprocess.DEVNULL,
                               cwd=TMP, env=dict(os.environ, SYMPLEX_SOCKET=NOBODY))
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0, said
    return said, (TMP / "printed").read_text()


def test_progress_is_for_terminals_and_long_work():
    long = TMP / "long.sx"  # a second of interpreting
    long.write_text("""sx 1
graph "long" {
    %0 = parameter {name = "x", weight = 0} : f32[512, 512]
    %1 = dot_general(%0, %0) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} : f32[512, 512]
    %2 = dot_general(%1, %0) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} : f32[512, 512]
    return %2 as "y"
}
""")
    module, short = TMP / "long.sxm", TMP / "short.sxm"
    sx("compile", long, "-o", module, "--no-daemon")
    sx("compile", twice(), "-d", "n=3", "-o", short, "--no-daemon")
    said, printed = on_terminal("run", "--json", module, "--random", 1, "--check", "-n", 1)
    if json.loads(printed)["check"]["ns"] > 4e8:  # as it is on any machine of today
        assert b"checking: " in said and said.endswith(b"\r\x1b[K"), said
    assert on_terminal("run", short, "--random", 1, "--check", "-n", 1)[0] == b""
    assert sx("run", module, "--random", 1, "--check", "-n", 1).stderr == b""


def test_explain_says_that_the_whole_was_compared():
    module, _ = compile_to("encoder.sxm", ENCODER, "-d", "batch=4", "--no-daemon")
    lines = sx("explain", module).stdout.decode().splitlines()
    assert not [line for line in lines if line.startswith(("NOT RUN", "IMPRECISE"))], lines
    assert any("program as sent, all outputs" in line for line in lines), lines
    assert any("MatMul Add Div Erf Mul" in line for line in lines), lines  # a GELU in a contraction's kernel
    rows = js("explain", module)["checks"]
    [whole] = [row for row in rows if row["name"].startswith("program as sent, all outputs")]
    assert whole["passed"] and whole["elements"] == 4 * 128 * 256 and whole["error"] < 1e-5, whole


def test_weights_apart():
    with_weights, a = compile_to("with.sxm", MLP, "-d", "batch=3")
    without, b = compile_to("without.sxm", MLP, "-d", "batch=3", "--no-weights")
    assert a["key"] == b["key"] and without.stat().st_size < with_weights.stat().st_size - 2000000
    x = write_npy(TMP / "x3.npy", input_rows(3), [3, 784])
    sx("run", with_weights, "--input", "x=%s" % x, "--output", TMP / "o1", "-n", 1)
    assert "weight fc0.weight is not given" in error_of("run", without, "--input", "x=%s" % x, status=2)["message"]
    sx("module", "dump", with_weights, "-o", TMP / "w")
    given = []
    for path in sorted((TMP / "w" / "weights").iterdir()):
        given += ["--weight", "%s=%s" % (path.stem[4:].replace("_", "."), path)]
    assert len(given) == 12
    run = js("run", without, "--input", "x=%s" % x, *given, "--output", TMP / "o2", "--check", "-n", 1)
    assert run["check"]["passed"]
    one, two = read_npy(TMP / "o1" / "y.npy"), read_npy(TMP / "o2" / "y.npy")
    assert one == two and one[0] == (3, 10)
    for row in range(3):
        assert abs(sum(one[1][10 * row:10 * row + 10]) - 1) < 1e-5


def test_bits_do_not_depend_on_batch_or_target():
    rows = {}
    for target in TARGETS:
        for batch in (1, 3):
            module, _ = compile_to("mlp.sxm", MLP, "-d", "batch=%d" % batch, "-t", target)
            x = write_npy(TMP / "x.npy", input_rows(batch), [batch, 784])
            run = js("run", module, "--input", "x=%s" % x, "--output", TMP / "o", "--check", "-n", 1)
            assert run["check"]["passed"] and run["check"]["elements"] == 10 * batch
            rows[target, batch] = read_npy(TMP / "o" / "y.npy")[1][:10].tobytes()
            sx("run", module, "--random", 7, "--check", "-n", 1)
    assert len(set(rows.values())) == 1, rows


def test_example_and_header():
    done = subprocess.run([str(BINARY / "symplex-example"), MLP], capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, SYMPLEX_SOCKET=NOBODY))
    assert done.returncode == 0, done
    assert done.stdout.count("sum 1.000000") == 4 and done.stderr.count("compiling in process") == 1, done
    for model, status, said in ((MLP, 0, ""), (ENCODER, 1, "x of 131072 bytes")):  # whose tensors have no room there
        done = subprocess.run([str(BINARY / "symplex-example-batches"), model], capture_output=True, text=True,
                              timeout=60, env=dict(os.environ, SYMPLEX_SOCKET=NOBODY))
        assert done.returncode == status and said in done.stderr, done
    library = BINARY.parent / "lib" / "libsymplex.so"
    needs("nm", "g++", "gcc")
    table = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in table.splitlines() if line.split()[-2] in "TDBR"]
    ours = [n for n in names if n.startswith(("sx", "symplex"))]
    assert ours and all(n.startswith("symplex_") for n in ours), ours
    header = '#include "client/symplex.h"\nint main(%s) { return symplex_version() == 0; }\n'
    for compiler, language, standard, arguments in (("g++", "c++", "c++11", ""), ("gcc", "c", "c99", "void")):
        subprocess.run([compiler, "-x", language, "-std=" + standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                        "-I", str(ROOT), "-fsyntax-only", "-"], input=header % arguments, text=True, check=True)


# ---- with the daemon ----
def test_miss_hit_restart_hit():
    root = tempfile.mkdtemp(prefix="sxd.")
    arguments = (MLP, "-d", "batch=5")
    try:
        with Daemon(program="symplexd", root=root) as daemon:
            first, miss = compile_to("m1.sxm", *arguments, "--daemon-only", socket=daemon.path)
            second, hit = compile_to("m2.sxm", *arguments, "--daemon-only", socket=daemon.path)
            assert not miss["hit"] and miss["tier"] == "none" and hit["hit"] and hit["tier"] == "ram", (miss, hit)
            assert first.read_bytes() == second.read_bytes() and miss["key"] == hit["key"]
            status = js("status", socket=daemon.path, schema="status_result")["counters"]
            assert status["compiles"] == 1 and status["hits_ram"] == 1 and status["coalesced"] == 0, status
            other, change = compile_to("m3.sxm", *arguments, "--exact", "--daemon-only", socket=daemon.path)
            assert not change["hit"] and change["key"] != miss["key"]
            again, refresh = compile_to("m4.sxm", *arguments, "--refresh", "--daemon-only", socket=daemon.path)
            assert not refresh["hit"] and refresh["key"] == miss["key"]
        with Daemon(program="symplexd", root=root) as daemon:
            third, disk = compile_to("m5.sxm", *arguments, "--daemon-only", socket=daemon.path)
            assert disk["hit"] and disk["tier"] == "disk" and third.read_bytes() == again.read_bytes(), disk
            assert js("status", socket=daemon.path)["counters"]["compiles"] == 0
            said = sx("compile", *arguments, "--daemon-only", "-o", third,
                      socket=daemon.path).stderr.decode().splitlines()
            assert len(said) == 1 and "from the cache (ram)" in said[0], said
        alone, here = compile_to("m6.sxm", *arguments)
        assert here["tier"] == "process" and here["key"] == miss["key"] and not here["hit"]
        shown = [js("module", "show", path) for path in (third, alone)]
        for table in ("tensors", "kernels", "launches"):
            assert shown[0][table] == shown[1][table], table
        x = write_npy(TMP / "x5.npy", input_rows(5), [5, 784])
        for path, folder in ((third, "p"), (alone, "q")):
            sx("run", path, "--input", "x=%s" % x, "--output", TMP / folder, "-n", 1)
        assert read_npy(TMP / "p" / "y.npy") == read_npy(TMP / "q" / "y.npy")
    finally:
        shutil.rmtree(root, ignore_errors=True)


def test_one_request_gives_the_same_bytes():
    """In process and by two daemons that have seen nothing yet: no clock, process number or order of workers
    is in a module."""
    layers = TMP / "layers.sx"
    layers.write_text(stack(6))
    for name, *arguments in (("mlp", MLP, "-d", "batch=3"), ("layers", layers)):
        made = [compile_to("%s.%d.sxm" % (name, i), *arguments, "--no-daemon")[0].read_bytes() for i in range(2)]
        for i in range(2, 4):
            with Daemon(program="symplexd") as daemon:
                made.append(compile_to("%s.%d.sxm" % (name, i), *arguments, "--daemon-only",
                                       socket=daemon.path)[0].read_bytes())
                made.append(compile_to("%s.%d.sxm" % (name, i), *arguments, "--refresh", "--daemon-only",
                                       socket=daemon.path)[0].read_bytes())
        files = [of_file(module) for module in made]
        assert len(set(files)) == 1, [differences(files[0], other) for other in files]
        seals = [module[len(files[0]):] for module in made]  # of three keys: ours and those of two daemons
        assert all(len(seal) == 104 for seal in seals) and seals[0::2] == seals[1::2] and len(set(seals)) == 3, seals


def of_file(module):
    """Without the seal, which is that of whoever compiled it and no part of the file."""
    return module[:int.from_bytes(module[16:24], "little")]


def test_who_verified():
    """A daemon signs with the key of its own state directory: while it answers, its modules are verified; then
    its key is unknown."""
    source = TMP / "who.sx"
    source.write_text(TWICE)
    with Daemon(program="symplexd") as daemon:
        module, _ = compile_to("who.sxm", source, "-d", "n=4", "--daemon-only", socket=daemon.path)
        known = js("module", "check", module, socket=daemon.path, schema="module_check")
        assert known["record"] == "verified" and len(known["record_key"]) == 16, known
        assert "verified by the daemon, these bytes" in sx("module", "check", module,
                                                           socket=daemon.path).stdout.decode()
        assert js("run", module, "--random", "1", socket=daemon.path)["record"] == "verified"
        key = js("compile", source, "-d", "n=4", "-o", TMP / "x.sxm", socket=daemon.path)["key"]
        assert js("explain", key, socket=daemon.path)["record"] == "verified"
        own, _ = compile_to("own.sxm", source, "-d", "n=4", "--no-daemon", socket=daemon.path)
        assert js("module", "check", own, socket=daemon.path)["record_key"] != known["record_key"]
    stopped = js("module", "check", module)
    assert stopped["record"] == "unknown-key" and stopped["record_key"] == known["record_key"], stopped
    again = js("verify", module)
    # four elements of one kernel, of the output, and of the output on four draws of all magnitudes
    assert again["schema"] == "verify/1" and again["comparisons"] == 3 and again["elements"] == 24, again
    assert js("module", "check", own)["record"] == "verified"
    weights, _ = compile_to("weights.sxm", MLP, "-d", "batch=2")  # put into the module after it was signed
    assert js("module", "check", weights)["record"] == "verified"


def differences(a, b):
    places = [i for i in range(min(len(a), len(b))) if a[i] != b[i]]
    return len(a), len(b), len(places), places[:16]


def test_sixteen_clients_one_compilation():
    with Daemon(program="symplexd") as daemon:
        def one(i):
            return compile_to("p%d.sxm" % i, MLP, "-d", "batch=6", "--daemon-only", socket=daemon.path)[1]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            made = list(pool.map(one, range(16)))
        assert len({m["key"] for m in made}) == 1
        assert len({(TMP / ("p%d.sxm" % i)).read_bytes() for i in range(16)}) == 1
        counters = js("status", socket=daemon.path)["counters"]
        assert counters["compiles"] == 1, counters
        assert counters["coalesced"] + counters["hits_ram"] == 15, counters


def test_caches_of_others():
    with Daemon(program="symplexd") as daemon:
        with daemon.client() as client:
            for name in (b"a", b"b"):
                client.call("artefact.put", {"cache": "triton", "name": name, "value": b"v" * 100, "cost_us": 1500000})
            client.call("artefact.put", {"cache": "jax", "name": b"c", "value": b"w"})
        stats = js("cache", "stats", socket=daemon.path, schema="artefact_caches_result")
        assert [(r["cache"], r["entries"], r["size"]) for r in stats["caches"]] == [("jax", 1, 1), ("triton", 2, 200)]
        text = sx("cache", "stats", socket=daemon.path).stdout.decode()
        assert "triton" in text and " 3.0" in text and "of 5368709120 bytes, 0 being made, 0 waiting" in text, text
        assert b"triton" in sx("cache", "ls", socket=daemon.path).stdout
        assert b"2 entries removed" in sx("cache", "rm", "triton", socket=daemon.path).stdout
        assert js("cache", "rm", "triton", socket=daemon.path, schema="cache_evict_result")["entries"] == 0
        assert error_of("cache", "rm", "No", status=4, socket=daemon.path)["code"] == "INPUT"


def test_service_commands():
    source = TMP / "twice.sx"
    source.write_text(TWICE)
    with Daemon(program="symplexd") as daemon:
        def ask(*arguments, **more):
            return js(*arguments, socket=daemon.path, **more)
        keys = [ask("compile", source, "--daemon-only", "-d", "n=%d" % n, "-o", TMP / "t.sxm")["key"]
                for n in (1, 2, 3)]
        assert ask("ping", schema="ping_result")["boot_id"]
        assert sx("ping", socket=daemon.path).stdout.startswith(b"alive")
        listed = ask("cache", "ls", schema="cache_list_result")
        assert {e["key"] for e in listed["entries"] if e["kind"] == "module"} == set(keys) and not listed["more"]
        assert [e["kind"] for e in listed["entries"]].count("egraph") == 1
        assert b"egraph" in sx("cache", "ls", socket=daemon.path).stdout
        assert len(ask("cache", "ls", "--limit", 2)["entries"]) == 2
        assert b"more" in sx("cache", "ls", "--limit", "2", socket=daemon.path).stderr
        shown = ask("cache", "show", keys[1], schema="cache_show_result")
        assert shown["entry"][0]["key"] == keys[1]
        parts = {p["name"]: bytes.fromhex(p["value"]) for p in shown["parts"]}
        assert parts["extents"] == b"n=2" and parts["target"].startswith(b"x86-64-v"), parts
        assert ask("cache", "show", keys[1][:12].upper()) == shown
        text = sx("cache", "show", keys[1], socket=daemon.path).stdout.decode()
        assert keys[1] in text and "n=2" in text
        for key, status, code in (("0" * 64, 1, "ABSENT"), ("0" * 20, 1, "ABSENT"), ("xyz", 2, "USAGE"),
                                  ("abc", 2, "USAGE"),
                                  ("a" * 65, 2, "USAGE")):
            assert error_of("cache", "show", key, status=status, socket=daemon.path)["code"] == code
        verified = ask("cache", "verify", schema="cache_verify_result")
        assert verified["checked"] == 4 and verified["bad"] == 0
        assert ask("cache", "evict", keys[0][:10], schema="cache_evict_result")["entries"] == 1
        assert not ask("compile", source, "--daemon-only", "-d", "n=1", "-o", TMP / "t.sxm")["hit"]
        assert ask("cache", "evict", "--all")["entries"] == 4
        sx("compile", source, "--daemon-only", "-d", "n=9", "-o", TMP / "t.sxm", socket=daemon.path)
        sx("optimize", source, "--daemon-only", "--onnx", TMP / "one.onnx", "-d", "n=9", socket=daemon.path)
        sx("optimize", source, "--no-daemon", "--onnx", TMP / "two.onnx", "-d", "n=9")
        assert (TMP / "one.onnx").read_bytes() == (TMP / "two.onnx").read_bytes() != b""
        other = TMP / "other.sx"  # x - -x
        other.write_text(TWICE.replace("%1 = add(%0, %0)", "%2 = negate(%0) : f32[n]\n    %1 = subtract(%0, %2)"))
        said = sx("compile", other, "--daemon-only", "-d", "n=9", "-o", TMP / "u.sxm", socket=daemon.path).stderr
        sx("optimize", other, "--daemon-only", "--onnx", TMP / "one.onnx", socket=daemon.path)
        assert b"equal to the stored program" in said and b"subtract-negate" in said, said
        assert "its module" in sx("explain", TMP / "u.sxm").stdout.decode()
        found = ask("compile", other, "--daemon-only", "-d", "n=8", "-o", TMP / "u.sxm", schema="compile")
        assert found["rules"] == "subtract-negate" and found["met"] and not found["hit"], found
        said = sx("compile", source, "--daemon-only", "-d", "n=7", "-o", TMP / "u.sxm", socket=daemon.path).stderr
        assert b"its search was stored already" in said and b"equal to" not in said, said
        said = sx("explain", TMP / "u.sxm").stdout
        assert b"known      the search was stored already" in said and b"equal to" not in said, said
        entries = {row["kind"]: row["key"] for row in ask("cache", "ls", schema="cache_list_result")["entries"]}
        for kind in ("module", "egraph"):
            assert b"digraph" in sx("egraph", entries[kind], socket=daemon.path).stdout, entries
        assert ask("optimize", source, "--daemon-only", schema="optimize")["program"].startswith("sx 1\n")
        assert ask("jobs", schema="jobs_result")["jobs"] is not None
        status = ask("status", schema="status_result")
        assert status["state"] == "ready" and status["socket"] == str(daemon.path)
        assert all(w in sx("status", socket=daemon.path).stdout.decode() for w in ("hits_ram", "coalesced", "WORKER"))
        rows = {f["name"]: f for f in ask("doctor")["findings"]}
        assert rows["daemon"]["found"] and rows["socket"]["found"] and "mode 0600" in rows["socket"]["detail"], rows
        assert status["directory"] in rows["state-directory"]["detail"]
        for arguments in (["compile", MLP], ["compile", source, "-d", "n=9999"],
                          ["compile", MLP, "-d", "batch=1", "-t", "z80"]):
            error_of(*arguments, "--daemon-only", "-o", TMP / "t.sxm", status=4, socket=daemon.path)
        assert ask("shutdown", schema="shutdown_result")["state"] == "draining"
        assert daemon.process.wait(20) == 0


def test_daemon_that_hangs():
    """Something listens and never answers: 50 ms, one line, and the work is done."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = TMP / "silent.sock"
    listener.bind(str(path))
    listener.listen(8)
    source = TMP / "twice.sx"
    source.write_text(TWICE)
    done = sx("compile", source, "-d", "n=4", "-o", TMP / "t.sxm", socket=path)
    assert b"says nothing; compiling in process" in done.stderr, done.stderr
    error_of("ping", status=3, socket=path)
    listener.close()


try:
    run(globals())
finally:
    shutil.rmtree(TMP, ignore_errors=True)
