#!/usr/bin/env python3
"""Writes networks that people export, with random weights from a seed. usage: make_networks.py FOLDER
[--small] [NAME...]

Without a name: all of them. --small: reduced sizes of the same structure, for tests. Files are
FOLDER/NAME.onnx, weights inside; they belong below build/ and are never committed. Needs the packages onnx and
numpy alone."""
import pathlib
import sys

sys.dont_write_bytecode = True

try:
    import onnx
except ImportError as error:
    sys.exit(f"{error}: run deploy/install-deps.sh, which puts it into build/venv")

import text  # noqa: E402
import vision  # noqa: E402

# Name -> maker, and the arguments of the small one. Full sizes are the defaults of the makers.
NETWORKS = {
    "resnet50": (vision.resnet50, {"size": 64, "width": 16, "blocks": (2, 2, 2, 2), "classes": 50}),
    "mobilenet_v3": (vision.mobilenet_v3, {"size": 64, "classes": 50, "last": 128}),
    "efficientnet_b0": (vision.efficientnet_b0, {"size": 64, "classes": 50, "last": 128}),
    "convnext_tiny": (vision.convnext_tiny, {"size": 64, "widths": (24, 48, 96, 192), "blocks": (1, 1, 2, 1),
                                             "classes": 50}),
    "vit_b_16": (vision.vit_b_16, {"size": 64, "width": 96, "heads": 4, "layers": 3, "hidden": 384, "classes": 50}),
    "bert_base": (text.bert_base, {"length": 24, "width": 96, "heads": 4, "layers": 3, "hidden": 384,
                                   "vocabulary": 300}),
    "gpt2": (text.gpt2, {"length": 24, "width": 48, "heads": 4, "vocabulary": 300, "positions": 64}),
    "gpt2_4": (lambda **sizes: text.gpt2(**dict({"layers": 4}, **sizes)),
               {"length": 24, "width": 96, "heads": 4, "vocabulary": 300,
                                                                          "positions": 64}),
    "llama_block": (text.llama_block, {"length": 24, "width": 128, "heads": 8, "shared": 2, "hidden": 352}),
}


def make(name, small):
    """The model of a network."""
    maker, sizes = NETWORKS[name]
    model = maker(**sizes) if small else maker()
    onnx.checker.check_model(model)
    return model


def main():
    names = [a for a in sys.argv[1:] if a != "--small"]
    if not names or names[0].startswith("-") or set(names[1:]) - set(NETWORKS):
        print(f"{__doc__}\n\nnetworks: {', '.join(NETWORKS)}", file=sys.stderr)
        return 2
    folder = pathlib.Path(names[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in names[1:] or NETWORKS:
        onnx.save(make(name, "--small" in sys.argv), folder / f"{name}.onnx")
        print(folder / f"{name}.onnx")
    return 0


if __name__ == "__main__":
    sys.exit(main())
