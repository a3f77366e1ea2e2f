#!/usr/bin/env python3
"""`symplex-bench torch`: a model of PyTorch compiled by one back end of torch.compile, run for each line on stdin;
answers with the nanoseconds of CALLS runs. Arguments: the back end ("symplex", "unbound", beside which symplex binds
parameters once in the cases "bound-MODEL", "inductor", or "dynamo", which compiles nothing), the case, the threads
and the folder of the package, python/ of the build.

Cases "cold-MODEL" and "warm-MODEL" answer with the time of the first call in a process of its own, after all imports:
with empty caches, or with those that another process filled. "dynamo-MODEL" takes such a call apart: what Dynamo takes
where the back end gives results that are there, and what symplex takes on top of it, with filled caches: its time as
the back end, and of the first run what later ones do not take."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from peer import serve, set_threads

BACKEND, CASE, THREADS, FOLDER = sys.argv[1:5]
KIND, _, MODEL = CASE.partition("-")
WARM_NS = 50_000_000
LATER = 5  # runs that show what a run takes


def example():
    """The function, its arguments, and how often it is called for one answer."""
    import torch
    sys.path.insert(0, FOLDER)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "frameworks"))
    import models
    import symplex.torch  # noqa: F401
    torch.set_num_threads(int(THREADS))
    torch.manual_seed(0)
    if MODEL:
        kind, arguments = models.LARGE[MODEL]
        return kind().train(KIND == "train"), [arguments()], 1
    def words():
        return torch.randint(1, 50, (1, 128))

    return {"call": lambda: (lambda a, b, c: a + b + c, [torch.ones(64) for _ in range(3)], 2000),
            "block": lambda: (models.Layer(256, 8, causal=True), [torch.randn(1, 128, 256)], 4),
            "resnet": lambda: (models.ResNet().eval(), [torch.randn(4, 3, 64, 64)], 4),
            "bert": lambda: (models.Bert(512, 8, 4, 50, 128), [words()], 2),
            "gpt2": lambda: (models.Gpt2(512, 8, 4, 50, 128), [words()], 2),
            "llama": lambda: (models.Llama(512), [words()], 4),
            "vit": lambda: (models.ViT(384, 6, 4, 16, 197), [torch.randn(1, 3, 224, 224)], 2),
            "unet": lambda: (models.UNet(), [torch.randn(1, 3, 128, 128)], 4)}[CASE]()


def ready(graph, inputs):
    """A back end that computes nothing: results of the right types are there before."""
    import torch
    (end,) = (n for n in graph.graph.nodes if n.op == "output")
    made = tuple(torch.zeros(tuple(n.meta["example_value"].shape), dtype=n.meta["example_value"].dtype)
                 for n in end.args[0])
    return lambda *args: made


def compiled(model, backend=BACKEND):
    import torch
    ours = {"symplex": "auto" if KIND == "bound" else False, "unbound": False}
    options = {"options": {"strict": True, "daemon": "never", "freeze": ours[backend]}} if backend in ours else {}
    name = ready if backend == "dynamo" else "symplex" if backend in ours else backend
    return torch.compile(model, backend=name, **options)


def engine():
    import torch
    model, args, calls = example()
    run_once = compiled(model)

    def run():
        if KIND == "train":
            run_once(*args).sum().backward()
            return
        with torch.no_grad():
            for _ in range(calls):
                run_once(*args)

    run()
    return f"PyTorch {torch.__version__}, {BACKEND}", run


def first_call():
    import torch
    import torch._inductor.compile_fx  # noqa: F401  imports of the first compilation
    model, args, _ = example()
    import symplex.torch._warm  # noqa: F401
    run = compiled(model)
    with torch.no_grad():
        start = time.perf_counter_ns()
        run(*args)
        print(time.perf_counter_ns() - start)


def on_top():
    """What the back end adds to a first call, by its own clock: other work on the machine hides it in the whole."""
    import torch
    import torch._inductor.compile_fx  # noqa: F401
    model, args, _ = example()
    import symplex.torch._warm  # noqa: F401
    from symplex.torch._backend import backend
    spent = []

    def timed(graph, inputs):
        start = time.perf_counter_ns()
        run = backend(graph, inputs, options={"strict": True, "daemon": "never"})
        spent.append(time.perf_counter_ns() - start)

        def timed_run(*args):
            start = time.perf_counter_ns()
            made = run(*args)
            spent.append(time.perf_counter_ns() - start)
            return made

        return timed_run

    with torch.no_grad():
        call = torch.compile(model, backend=timed, fullgraph=True)
        for _ in range(LATER + 1):
            call(*args)
    own, first, *later = spent
    print(own + max(0, first - sorted(later)[LATER // 2]))


def starts():
    """Each run is the first call of a new process."""
    import torch
    kept = tempfile.mkdtemp(prefix="sxb.")

    def run():
        folder = tempfile.mkdtemp(prefix="sxb.") if KIND == "cold" else kept
        env = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder, SYMPLEX_CACHE_DIR=folder)
        done = subprocess.run([sys.executable, *sys.argv, "--first"], env=env, stdout=subprocess.PIPE, check=True)
        if KIND == "cold":
            shutil.rmtree(folder)
        return int(done.stdout)

    return f"PyTorch {torch.__version__}, {BACKEND}", run


set_threads(int(THREADS))
if sys.argv[5:] == ["--first"]:
    on_top() if (KIND, BACKEND) == ("dynamo", "symplex") else first_call()
elif KIND in ("cold", "warm", "dynamo"):
    serve(starts, first=KIND != "cold", own_clock=True)
else:
    serve(engine, warm_ns=WARM_NS)
