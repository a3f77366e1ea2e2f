#!/usr/bin/env python3
"""`symplex-bench torch`: a model of PyTorch compiled by one back end of torch.compile, run for each line on stdin;
answers with the nanoseconds of CALLS runs. Arguments: the back end ("symplex", "inductor"), the case, the threads and
the folder of the package, python/ of the build."""
import pathlib
import sys

from peer import serve, set_threads

BACKEND, CASE, THREADS, FOLDER = sys.argv[1:]


def engine():
    import torch
    sys.path.insert(0, FOLDER)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "frameworks"))
    import models
    import symplex.torch  # noqa: F401
    torch.set_num_threads(int(THREADS))
    torch.manual_seed(0)
    def words():
        return torch.randint(1, 50, (1, 128))

    model, args, calls = {
        "call": lambda: (lambda a, b, c: a + b + c, [torch.ones(64) for _ in range(3)], 2000),
        "block": lambda: (models.Layer(256, 8, causal=True), [torch.randn(1, 128, 256)], 4),
        "resnet": lambda: (models.ResNet().eval(), [torch.randn(4, 3, 64, 64)], 4),
        "bert": lambda: (models.Bert(512, 8, 4, 128), [words()], 2),
        "gpt2": lambda: (models.Gpt2(512, 8, 4, 128), [words()], 2),
        "llama": lambda: (models.Llama(512), [words()], 4),
        "vit": lambda: (models.ViT(384, 6, 4, 16, 196), [torch.randn(1, 3, 224, 224)], 2),
        "unet": lambda: (models.UNet(), [torch.randn(1, 3, 128, 128)], 4)}[CASE]()
    options = {"options": {"strict": True, "daemon": "never"}} if BACKEND == "symplex" else {}
    compiled = torch.compile(model, backend=BACKEND, **options)

    def run():
        with torch.no_grad():
            for _ in range(calls):
                compiled(*args)

    run()
    return f"PyTorch {torch.__version__}, {BACKEND}", run


set_threads(int(THREADS))
serve(engine, 50_000_000)
