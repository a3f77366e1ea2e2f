#!/usr/bin/env python3
"""Writes tests/data/networks: BERT, GPT-2, a Llama block and ViT of models.py and an encoder of torch.nn, in bf16, as
symplex.torch.from_exported gives programs of torch.export to the compiler.

    export_networks.py FOLDER [NAME ...]"""
import os
import pathlib
import sys
from unittest import mock

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torch  # noqa: E402
from models import Bert, Gpt2, Llama, ViT, words  # noqa: E402
from torch import nn  # noqa: E402

import symplex.torch  # noqa: E402
from symplex.torch import _run  # noqa: E402


def encoder():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True, norm_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


NETWORKS = {"bert": (lambda: Bert(256, 4, 2, 1000, 128), lambda: words(1, 128, 1000)),
            "encoder": (encoder, lambda: torch.randn(1, 128, 256)),
            "gpt2": (lambda: Gpt2(256, 4, 2, 1000, 128), lambda: words(1, 128, 1000)),
            "llama": (lambda: Llama(512, 1000), lambda: words(1, 128, 1000)),
            "vit": (lambda: ViT(384, 6, 2, 8, 65), lambda: torch.randn(1, 3, 64, 64))}


class Taken(BaseException):
    """The program is there: nothing need be compiled."""


def text_of(name):
    kind, example = NETWORKS[name]
    model, x = kind().eval().bfloat16(), example()
    program = torch.export.export(model, (x.bfloat16() if x.is_floating_point() else x,))
    with mock.patch.object(_run, "compile_bytes", side_effect=Taken) as compiling:
        try:
            symplex.torch.from_exported(program, strict=True, daemon="never", target="h200")
        except Taken:
            return compiling.call_args.args[0]
    raise AssertionError(name)


if __name__ == "__main__":
    for network in sys.argv[2:] or NETWORKS:
        pathlib.Path(sys.argv[1], network + ".sx").write_text(text_of(network), encoding="utf-8")
