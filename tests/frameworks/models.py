"""Models of the usual kinds, written with torch.nn, with random weights: small ones, and such as take a machine of two
processors some milliseconds."""
import torch
from torch import nn
from torch.nn import functional as F


class ResNet(nn.Module):
    class Block(nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            self.a = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.b = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.norm_a, self.norm_b = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
            self.short = nn.Identity() if inside == outside else nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

        def forward(self, x):
            y = F.relu(self.norm_a(self.a(x)))
            return F.relu(self.norm_b(self.b(y)) + self.short(x))

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(self.Block(8, 8, 1), self.Block(8, 16, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class ResNet50(nn.Module):
    class Block(nn.Module):
        def __init__(self, inside, width, stride):
            super().__init__()
            def part(*sizes):
                return nn.Sequential(nn.Conv2d(*sizes, bias=False), nn.BatchNorm2d(sizes[1]))
            self.a, self.b = part(inside, width, 1), part(width, width, 3, stride, 1)
            self.c = part(width, 4 * width, 1)
            self.short = nn.Identity() if inside == 4 * width else part(inside, 4 * width, 1, stride)

        def forward(self, x):
            return F.relu(self.c(F.relu(self.b(F.relu(self.a(x))))) + self.short(x))

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, inside = [], 64
        for i, count in enumerate((3, 4, 6, 3)):
            for k in range(count):
                blocks.append(self.Block(inside, 64 << i, 2 if i and not k else 1))
                inside = 4 * 64 << i
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inside, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class ViT(nn.Module):
    def __init__(self, width=32, heads=4, count=2, patch=4, places=17):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width) / 8)
        self.place = nn.Parameter(torch.randn(1, places, width) / 8)
        self.layers = nn.ModuleList([Layer(width, heads, causal=False) for _ in range(count)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.first.expand(y.shape[0], -1, -1), y], 1) + self.place
        for layer in self.layers:
            y = layer(y)
        return self.head(self.norm(y)[:, 0])


class Layer(nn.Module):
    """Norm, attention, norm, two products with a gelu."""

    def __init__(self, width, heads, causal, approximate="none"):
        super().__init__()
        self.heads, self.causal, self.approximate = heads, causal, approximate
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask=None):
        n, s, d = x.shape
        q, k, v = (t.view(n, s, self.heads, d // self.heads).transpose(1, 2)
                   for t in self.qkv(self.norm_a(x)).split(d, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(n, s, d))
        return x + self.down(F.gelu(self.up(self.norm_b(x)), approximate=self.approximate))


class Bert(nn.Module):
    def __init__(self, width=32, heads=4, count=2, vocabulary=50, places=16):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width, padding_idx=0), nn.Embedding(places, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([Layer(width, heads, causal=False) for _ in range(count)])
        self.pool, self.head = nn.Linear(width, width), nn.Linear(width, 10)

    def forward(self, words):
        mask = (words != 0)[:, None, None, :]
        x = self.norm(self.words(words) + self.places(torch.arange(words.shape[1])))
        for layer in self.layers:
            x = layer(x, mask.expand(-1, 1, words.shape[1], -1))
        return self.head(torch.tanh(self.pool(x[:, 0])))


class Gpt2(nn.Module):
    def __init__(self, width=32, heads=4, count=2, vocabulary=50, places=16):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(places, width)
        self.layers = nn.ModuleList([Layer(width, heads, causal=True, approximate="tanh") for _ in range(count)])
        self.norm = nn.LayerNorm(width)

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return (self.norm(x) @ self.words.weight.t())[:, -1]


class Llama(nn.Module):
    """One block: RMS norm, rotary places, four heads of queries for two of keys, SwiGLU."""

    def __init__(self, width=32, vocabulary=50):
        super().__init__()
        self.words, self.each = nn.Embedding(vocabulary, width), width // 4
        self.norm_a, self.norm_b = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.kv, self.o = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down, self.head = nn.Linear(2 * width, width, bias=False), nn.Linear(width, vocabulary, bias=False)

    @staticmethod
    def turned(x):
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[-2])[:, None] / 100 ** (torch.arange(half) / half)
        angle = torch.cat([angle, angle], -1).to(x.dtype)
        return x * angle.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angle.sin()

    def forward(self, words):
        x = self.words(words)
        n, s, _ = x.shape
        y = self.norm_a(x)
        q = self.q(y).view(n, s, 4, self.each).transpose(1, 2)
        k, v = (t.view(n, s, 2, self.each).transpose(1, 2).repeat_interleave(2, 1) for t in self.kv(y).chunk(2, -1))
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(n, s, 4 * self.each))
        y = self.norm_b(x)
        return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))[:, -1]


class Lstm(nn.Module):
    def __init__(self, inside=8, width=16):
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(inside, width), nn.LSTMCell(width, width)])
        self.head, self.width = nn.Linear(width, 10), width

    def forward(self, x):
        states = [(x.new_zeros(x.shape[0], self.width), x.new_zeros(x.shape[0], self.width)) for _ in self.cells]
        for row in x.unbind(1):
            for i, cell in enumerate(self.cells):
                states[i] = cell(row, states[i])
                row = states[i][0]
        return self.head(row)


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        def block(inside, outside):
            return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(2, outside), nn.SiLU())
        self.a, self.b = block(3, width), block(width, 2 * width)
        self.c, self.d = block(2 * width, width), block(2 * width, width)
        self.up, self.head = nn.ConvTranspose2d(2 * width, width, 2, 2), nn.Conv2d(width, 10, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.d(torch.cat([a, self.up(b)], 1))
        small = F.interpolate(self.c(b), scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(c + small).mean((2, 3))


def words(count=3, length=12, vocabulary=50):
    return torch.randint(0, vocabulary, (count, length))


MODELS = {"resnet": (ResNet, lambda: torch.randn(3, 3, 32, 32)), "vit": (ViT, lambda: torch.randn(3, 3, 16, 16)),
          "bert": (Bert, words), "gpt2": (Gpt2, words), "llama": (Llama, words),
          "lstm": (Lstm, lambda: torch.randn(3, 5, 8)), "unet": (UNet, lambda: torch.randn(3, 3, 16, 16))}

LARGE = {"resnet50": (ResNet50, lambda: torch.randn(1, 3, 64, 64)),
         "vit": (lambda: ViT(192, 3, 12, 8, 65), lambda: torch.randn(1, 3, 64, 64)),
         "bert": (lambda: Bert(256, 8, 12, 1000, 128), lambda: words(1, 128, 1000)),
         "gpt2": (lambda: Gpt2(256, 8, 12, 1000, 128), lambda: words(1, 128, 1000)),
         "llama": (lambda: Llama(512, 1000), lambda: words(1, 128, 1000)),
         "lstm": (lambda: Lstm(64, 128), lambda: torch.randn(8, 16, 64)),
         "unet": (lambda: UNet(32), lambda: torch.randn(1, 3, 64, 64))}
