#!/usr/bin/env python3
"""test_docs.py sees what is planted: each kind of claim, once true and once false."""
import sys

sys.dont_write_bytecode = True
sys.argv = ["test_docs.py"]
import test_docs  # noqa: E402

COMMANDS = {"compile": {"dim", "output"}, "search show": {"json"}}
BENCHES = {"encoder": ["batch8"], "search": ["chain"]}


def told(count, check, *arguments):
    test_docs.findings.clear()
    check(*arguments)
    assert len(test_docs.findings) == count, (arguments, test_docs.findings)
    test_docs.findings.clear()


def client(line):
    for number, name, words in test_docs.shown_commands(line):
        assert name == "symplex-client"
        test_docs.check_client("page", number, words, COMMANDS)


def bench(line):
    for number, name, words in test_docs.shown_commands(line):
        assert name == "symplex-bench"
        test_docs.check_bench("page", number, words, BENCHES, "--case C --rounds N")


def test_commands():
    told(0, client, "    $ symplex-client compile a.onnx --dim batch=8 -o a.sxm     what it does --not-an-option")
    told(0, client, "see `symplex-client search show 1 --json`")
    told(1, client, "    build/release/bin/symplex-client compile a.onnx --fast")
    told(1, client, "    symplex-client comple a.onnx")
    told(0, bench, "`symplex-bench encoder [--case batch8] --rounds 3`")
    told(1, bench, "`symplex-bench encoder --case batch9`")
    told(1, bench, "`symplex-bench encoders`")
    told(1, bench, "    symplex-bench encoder --turns 3")


def test_tables():
    rows = "| bench | case | ours |\n|---|---|---|\n| encoder | %s | 4 ms |\n"
    told(0, test_docs.check_tables, "page", rows % "batch8, with words", BENCHES)
    told(1, test_docs.check_tables, "page", rows % "batch7", BENCHES)
    other = "# A\n%s\n| program | best |\n|---|---|\n| %s | 4 |\n"
    told(0, test_docs.check_tables, "page", other % ("`symplex-bench search`", "chain: 18"), BENCHES)
    told(1, test_docs.check_tables, "page", other % ("`symplex-bench search`", "ring"), BENCHES)
    told(1, test_docs.check_tables, "page", other % ("measured by hand", "chain"), BENCHES)


def test_figures():
    text = "| `unit` | programs | 100 |\n| lines | 1,000 | counted |\n"
    told(0, test_docs.check_figures, text, {"`unit`": 95, "lines": 1099}, False)
    told(2, test_docs.check_figures, text, {"`unit`": 120, "lines": 1200}, False)
    told(1, test_docs.check_figures, text, {"`unit`": 100, "lines": 1000, "cases": 5}, False)
    told(0, test_docs.check_figures, text, {"`unit`": 120, "lines": 1200}, True)
    written = test_docs.check_figures(text, {"`unit`": 1200, "lines": 20}, True)
    assert written == "| `unit` | programs | 1,200 |\n| lines | 20 | counted |\n", written


def test_tests_named():
    text = "\n## Layers and oracles\n| l | t | o |\n|---|---|---|\n" \
           "| x | `core/ir`, `tests/core/ir/test_parse`, `test_text` | y |\n" \
           "\n## Planted faults\n| f | t |\n|---|---|\n| a `b` | `%s` |\n\n## More\n"
    for good in ("core.base.test_base", "tests/tools/test_sets.py`: `test_counts", "tools/test_sets.py",
                 "e2e.test_bits.x86-64-v4"):
        told(0, test_docs.check_tests_named, text % good)
    for bad in ("core.base.test_bases", "test_nothing", "tests/tools/test_sets.py`: `test_accounts"):
        told(1, test_docs.check_tests_named, text % bad)
    told(2, test_docs.check_tests_named, "no tables")


def test_lists():
    table = "| `fuzz_wire` | frames |\n"
    told(0, test_docs.check_fuzz_targets, table, ["tests/fuzz/fuzz_wire.c", "tests/fuzz/replay.c"])
    told(1, test_docs.check_fuzz_targets, table, ["tests/fuzz/fuzz_wire.c", "tests/fuzz/fuzz_code.c"])
    told(1, test_docs.check_fuzz_targets, table, [])
    told(0, test_docs.check_folders, ["core/base/base.h", "tests/core/base/test_base.c"])
    told(2, test_docs.check_folders, ["core/bare/bare.h", "tests/bare/deep/test_bare.c"])
    told(0, test_docs.check_drawing, "core/pipeline.c, optimize/fragments.h")
    told(1, test_docs.check_drawing, "core/pipelines.c")
    told(1, test_docs.check_paths, "README.md", "`core/nothing.c`")
    told(1, test_docs.check_paths, "README.md", "[a](docs/NOTHING.md)")
    told(0, test_docs.check_paths, "README.md", "`core/pipeline.c` and [a](docs/IR.md)")
    told(1, test_docs.check_settings, "`SX_NO_SUCH_SETTING`".replace("_NO_", "_NOT_"))


for name, function in list(globals().items()):
    if name.startswith("test_") and callable(function):
        function()
        print("ok", name)
