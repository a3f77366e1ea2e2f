#!/usr/bin/env python3
"""What PyTorch and Triton take for the shapes of a list, on the GPU of this machine.

usage: peer.py SHAPES OUT [SECONDS]

Writes a line for each shape and peer: SHAPE PEER MICROSECONDS, or SHAPE PEER skipped REASON. Medians by CUDA events
over a CUDA graph whose launches take turns with more sets of tensors than fit the second level; random elements.
Where something is missing, out of memory or out of time, the line says so, and it goes on."""
import sys
import time

SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 200.0
BEGAN = time.monotonic()
COMPILED_MOST = 40  # microseconds matter less than the minutes of tuning: so many shapes by max-autotune


def read_shapes(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and line[0] != "#":
                yield line.split(None, 4)[:4]


def parse(operation):
    kind, _, words = operation.partition(":")
    if kind == "norm":
        kind, _, words = words.partition(":")
    first, *options = words.split(",")
    given = dict(o.partition("=")[::2] for o in options)
    return kind, [int(x) for x in first.split("x")], given


class Peers:
    def __init__(self, torch, out):
        self.torch, self.out = torch, out
        self.l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 50 << 20)
        self.compiled = 0

    def put(self, shape, peer, value):
        print(shape, peer, value, file=self.out, flush=True)

    def random(self, *extents, dtype):
        return self.torch.rand(extents, device="cuda", dtype=self.torch.float32).mul_(2).sub_(1).to(dtype)

    def measure(self, function, sets):
        """Median microseconds of a call; a graph has each set as often as the others."""
        torch = self.torch
        launches = max(len(sets), 10 // len(sets) * len(sets))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            for arguments in sets[:3]:
                function(*arguments)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream), torch.no_grad():
            kept = [function(*sets[i % len(sets)]) for i in range(launches)]
        times = []
        for _ in range(25):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            with torch.cuda.stream(stream):
                graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / launches)
        del kept
        return sorted(times[3:])[len(times[3:]) // 2]

    def one(self, shape, peer, function, sets):
        if time.monotonic() - BEGAN > SECONDS:
            self.put(shape, peer, "skipped out of time")
            return
        try:
            self.put(shape, peer, f"{self.measure(function, sets):.4f}")
        except Exception as error:  # whatever a library answers is a reason
            self.put(shape, peer, "skipped " + (str(error).split("\n")[0][:80] or type(error).__name__))
            self.torch.cuda.synchronize()

    def count(self, tensors):
        bytes_ = sum(t.numel() * t.element_size() for t in tensors)
        return min(64, max(2, 3 * self.l2 // bytes_ + 1))

    def arguments(self, kind, x, given, dtype, layout):
        if kind == "gemm":
            m, n, k = x
            a = self.random(*((k, m) if layout[0] == "t" else (m, k)), dtype=dtype)
            b = self.random(*((n, k) if layout[1] == "t" else (k, n)), dtype=dtype)
            return [a.t() if layout[0] == "t" else a, b.t() if layout[1] == "t" else b]
        if kind in ("softmax", "rms", "layer"):
            scales = {"softmax": 0, "rms": 1, "layer": 2}[kind]
            return [self.random(*x, dtype=dtype)] + [self.random(x[1], dtype=dtype) for _ in range(scales)]
        batch, heads, tokens, size = x
        groups, keys = int(given.get("kv-heads", heads)), int(given.get("keys", tokens))
        return [self.random(batch, heads, tokens, size, dtype=dtype)] + [
            self.random(batch, groups, keys, size, dtype=dtype) for _ in range(2)]

    def function(self, kind, x, given):
        torch, nn = self.torch, self.torch.nn.functional
        if kind == "gemm":
            return torch.mm
        if kind == "softmax":
            return lambda t: nn.softmax(t, dim=-1)
        if kind == "rms":
            return lambda t, scale: nn.rms_norm(t, (x[1],), scale, 1e-5)
        if kind == "layer":
            return lambda t, scale, bias: nn.layer_norm(t, (x[1],), scale, bias, 1e-5)
        grouped = {"enable_gqa": True} if "kv-heads" in given else {}
        return lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, is_causal="causal" in given, **grouped)

    def shape(self, name, operation, type_, layout):
        torch = self.torch
        kind, x, given = parse(operation)
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[type_]
        function = self.function(kind, x, given)
        try:
            sets = [self.arguments(kind, x, given, dtype, layout)]
            sets += [self.arguments(kind, x, given, dtype, layout) for _ in range(self.count(sets[0]) - 1)]
        except Exception as error:
            self.put(name, "torch", "skipped " + str(error).split("\n")[0][:80])
            return
        if kind == "attention":
            self.backends(name, function, sets)
        else:
            self.one(name, "torch", function, sets)
        if kind == "gemm" and x[0] not in (1, 16, 512, 4096):
            self.put(name, "compile", "skipped tuned for some numbers of rows alone")
        elif self.compiled == COMPILED_MOST:
            self.put(name, "compile", "skipped enough were tuned")
        else:
            self.compiled += 1
            torch._dynamo.reset()
            tuned = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
            self.one(name, "compile", tuned, sets)
        if kind == "gemm":
            self.triton(name, sets)

    def backends(self, name, function, sets):
        """Each backend of scaled_dot_product_attention."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
            def call(*arguments, which=getattr(SDPBackend, backend, None)):
                if which is None:
                    raise RuntimeError("this PyTorch has no such backend")
                with sdpa_kernel(which):
                    return function(*arguments)
            self.one(name, "sdpa-" + backend.split("_")[0].lower(), call, sets)

    def triton(self, name, sets):
        try:
            import peer_triton
        except ImportError as error:
            self.put(name, "triton", f"skipped {error}")
            return
        self.one(name, "triton", peer_triton.product, sets)


def main():
    shapes = list(read_shapes(sys.argv[1]))
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        reason = None
        try:
            import torch
            reason = None if torch.cuda.is_available() else "PyTorch sees no GPU"
        except ImportError as error:
            reason = str(error)
        if reason is not None:
            for name, *_ in shapes:
                print(name, "torch", "skipped", reason, file=out)
            print(f"PyTorch, Triton: skipped: {reason}")
            return
        torch.manual_seed(7)
        peers = Peers(torch, out)
        for shape in shapes:
            peers.shape(*shape)
            torch.cuda.empty_cache()
        print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}")


main()
