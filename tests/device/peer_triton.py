"""A product in Triton, tuned among a few tiles: what somebody writes who follows its documentation."""
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BM": m, "BN": n, "BK": k, "GROUP": 8}, num_stages=s, num_warps=w)
           for m, n, k, s, w in ((128, 256, 64, 3, 8), (128, 128, 64, 4, 4), (128, 64, 64, 4, 4),
                                 (64, 128, 64, 4, 4), (64, 64, 64, 5, 4), (16, 128, 128, 4, 4), (16, 64, 128, 5, 4))]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def kernel(a, b, c, m, n, k, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           GROUP: tl.constexpr):
    program = tl.program_id(0)
    down, across = tl.cdiv(m, BM), tl.cdiv(n, BN)
    first = program // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    row = first + program % (GROUP * across) % height
    column = program % (GROUP * across) // height
    rows = row * BM + tl.arange(0, BM)
    columns = column * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    left = a + (rows % m)[:, None] * am + steps[None, :] * ak
    right = b + steps[:, None] * bk + (columns % n)[None, :] * bn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BK)):
        inside = steps < k - step * BK
        x = tl.load(left, mask=inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None], other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
        left += BK * ak
        right += BK * bk
    out = c + rows[:, None] * n + columns[None, :]
    tl.store(out, total.to(c.dtype.element_ty), mask=(rows < m)[:, None] & (columns < n)[None, :])


def product(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)  # noqa: E731
    kernel[grid](a, b, c, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    return c
