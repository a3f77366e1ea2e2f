"""Networks of torchvision: ResNet-50, MobileNetV3-large, EfficientNet-B0, ConvNeXt-tiny, ViT-B/16. Defaults
are the published sizes."""
from graph import Graph


def multiple_of_8(value):
    """How torchvision rounds numbers of channels."""
    rounded = max(8, int(value + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * value else rounded


def head(g, x, inside, classes):
    with g.scope("avgpool"):
        x = g.op("GlobalAveragePool", x)
    x = g.op("Flatten", x, axis=1)
    with g.scope("fc"):
        g.output("output", g.gemm(x, "fc", inside, classes), ["batch", classes])


def resnet50(size=224, width=64, blocks=(3, 4, 6, 3), classes=1000, seed=1):
    g = Graph("resnet50", seed)
    x = g.input("input", ["batch", 3, size, size])
    with g.scope("conv1"):
        x = g.conv(x, 3, width, 7, stride=2)
    with g.scope("relu"):
        x = g.op("Relu", x)
    with g.scope("maxpool"):
        x = g.op("MaxPool", x, ceil_mode=0, dilations=[1, 1], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    inside = width
    for stage, count in enumerate(blocks):
        middle = width << stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            with g.scope(f"layer{stage + 1}"), g.scope(f"layer{stage + 1}.{block}"):
                x = bottleneck(g, x, inside, middle, stride, block == 0)
            inside = 4 * middle
    head(g, x, inside, classes)
    return g.model()


def bottleneck(g, x, inside, middle, stride, first):
    y = x
    for name, a, b, kernel, step in (("1", inside, middle, 1, 1), ("2", middle, middle, 3, stride),
                                     ("3", middle, 4 * middle, 1, 1)):
        with g.scope("conv" + name):
            y = g.conv(y, a, b, kernel, stride=step, spread=None if name != "3" else 0.5)
        if name != "3":
            with g.scope("relu"):
                y = g.op("Relu", y)
    if first:
        with g.scope("downsample"), g.scope("downsample.0"):
            x = g.conv(x, inside, 4 * middle, 1, stride=stride, spread=1)
    y = g.op("Add", y, x)
    with g.scope("relu"):
        return g.op("Relu", y)


# kernel, expanded, out, squeeze-and-excitation, hard-swish, stride
MOBILENET_V3_LARGE = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1), (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1))


def mobilenet_v3(size=224, classes=1000, blocks=MOBILENET_V3_LARGE, last=1280, seed=2):
    g = Graph("mobilenet_v3_large", seed)
    x = g.input("input", ["batch", 3, size, size])
    with g.scope("features"):
        with g.scope("features.0"):
            x = g.op("HardSwish", g.conv(x, 3, 16, 3, stride=2))
        inside = 16
        for at, (kernel, expanded, outside, excite, swish, stride) in enumerate(blocks):
            with g.scope(f"features.{at + 1}"):
                x = inverted(g, x, inside, kernel, expanded, outside, excite, "HardSwish" if swish else "Relu", stride)
            inside = outside
        with g.scope(f"features.{len(blocks) + 1}"):
            x = g.op("HardSwish", g.conv(x, inside, 6 * inside, 1))
    with g.scope("avgpool"):
        x = g.op("GlobalAveragePool", x)
    x = g.op("Flatten", x, axis=1)
    with g.scope("classifier"):
        x = g.op("HardSwish", g.gemm(x, "classifier.0", 6 * inside, last))
        g.output("output", g.gemm(x, "classifier.3", last, classes), ["batch", classes])
    return g.model()


def inverted(g, x, inside, kernel, expanded, outside, excite, activation, stride):
    y = x
    with g.scope("block"):
        if expanded != inside:
            y = g.op(activation, g.conv(y, inside, expanded, 1))
        y = g.op(activation, g.conv(y, expanded, expanded, kernel, stride=stride, groups=expanded))
        if excite:
            squeezed = multiple_of_8(expanded // 4)
            with g.scope("block.excite"):
                s = g.op("GlobalAveragePool", y)
                s = g.op("Relu", g.conv(s, expanded, squeezed, 1, bias=(g.fold("Conv"), g.fold("Conv"))))
                s = g.conv(s, squeezed, expanded, 1, bias=(g.fold("Conv"), g.fold("Conv")))
                y = g.op("Mul", g.op("HardSigmoid", s, alpha=1 / 6), y)
        y = g.conv(y, expanded, outside, 1, spread=1)
    return g.op("Add", y, x) if stride == 1 and inside == outside else y


# expansion, kernel, stride, out, layers
EFFICIENTNET_B0 = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
                   (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))


def efficientnet_b0(size=224, classes=1000, stages=EFFICIENTNET_B0, last=1280, seed=3):
    g = Graph("efficientnet_b0", seed)
    x = g.input("input", ["batch", 3, size, size])
    with g.scope("features"):
        with g.scope("features.0"):
            x = g.silu(g.conv(x, 3, 32, 3, stride=2))
        inside = 32
        for at, (expansion, kernel, stride, outside, layers) in enumerate(stages):
            for layer in range(layers):
                with g.scope(f"features.{at + 1}"), g.scope(f"features.{at + 1}.{layer}"):
                    x = mbconv(g, x, inside, expansion, kernel, stride if layer == 0 else 1, outside)
                inside = outside
        with g.scope(f"features.{len(stages) + 1}"):
            x = g.silu(g.conv(x, inside, last, 1))
    head(g, x, last, classes)
    return g.model()


def mbconv(g, x, inside, expansion, kernel, stride, outside):
    y, expanded, squeezed = x, inside * expansion, max(1, inside // 4)
    with g.scope("block"):
        if expansion != 1:
            y = g.silu(g.conv(y, inside, expanded, 1))
        y = g.silu(g.conv(y, expanded, expanded, kernel, stride=stride, groups=expanded))
        with g.scope("block.excite"):
            s = g.op("GlobalAveragePool", y)
            s = g.silu(g.conv(s, expanded, squeezed, 1, bias=(g.fold("Conv"), g.fold("Conv"))))
            s = g.conv(s, squeezed, expanded, 1, bias=(g.fold("Conv"), g.fold("Conv")))
            y = g.op("Mul", g.op("Sigmoid", s), y)
        y = g.conv(y, expanded, outside, 1, spread=2)
    return g.op("Add", y, x) if stride == 1 and inside == outside else y


def norm_2d(g, x, name, width):
    """LayerNorm2d: channels last and back."""
    x = g.layer_norm(g.op("Transpose", x, perm=[0, 2, 3, 1]), name, width, 1e-6)
    return g.op("Transpose", x, perm=[0, 3, 1, 2])


def convnext_tiny(size=224, widths=(96, 192, 384, 768), blocks=(3, 3, 9, 3), classes=1000, seed=4):
    g = Graph("convnext_tiny", seed)
    x = g.input("input", ["batch", 3, size, size])
    with g.scope("features"):
        with g.scope("features.0"):
            x = g.conv(x, 3, widths[0], 4, stride=4, pad=0, bias=("features.0.0.weight", "features.0.0.bias"))
            x = norm_2d(g, x, "features.0.1", widths[0])
        for stage, (width, count) in enumerate(zip(widths, blocks)):
            for block in range(count):
                name = f"features.{2 * stage + 1}.{block}"
                with g.scope(f"features.{2 * stage + 1}"), g.scope(name):
                    x = convnext_block(g, x, name, width)
            if stage + 1 < len(widths):
                name = f"features.{2 * stage + 2}"
                with g.scope(name):
                    x = norm_2d(g, x, name + ".0", width)
                    x = g.conv(x, width, widths[stage + 1], 2, stride=2, pad=0,
                               bias=(name + ".1.weight", name + ".1.bias"), spread=1)
    with g.scope("avgpool"):
        x = g.op("GlobalAveragePool", x)
    with g.scope("classifier"):
        x = norm_2d(g, x, "classifier.0", widths[-1])
        x = g.op("Flatten", x, axis=1)
        g.output("output", g.gemm(x, "classifier.2", widths[-1], classes), ["batch", classes])
    return g.model()


def convnext_block(g, x, name, width):
    with g.scope("block"):
        y = g.conv(x, width, width, 7, groups=width, bias=(name + ".block.0.weight", name + ".block.0.bias"), spread=1)
        y = g.layer_norm(g.op("Transpose", y, perm=[0, 2, 3, 1]), name + ".block.2", width, 1e-6)
        y = g.gelu(g.linear(y, name + ".block.3", width, 4 * width))
        y = g.linear(y, name + ".block.5", 4 * width, width)
        y = g.op("Transpose", y, perm=[0, 3, 1, 2])
    y = g.op("Mul", g.around(name + ".layer_scale", width, 1, 1, centre=0.5), y)
    return g.op("Add", y, x)


def vit_b_16(size=224, patch=16, width=768, heads=12, layers=12, hidden=3072, classes=1000, seed=5):
    g = Graph("vit_b_16", seed)
    x = g.input("input", ["batch", 3, size, size])
    patches = (size // patch) ** 2
    batch = g.size(x, 0)
    with g.scope("conv_proj"):
        x = g.conv(x, 3, width, patch, stride=patch, pad=0, bias=("conv_proj.weight", "conv_proj.bias"), spread=1)
    x = g.op("Transpose", g.view(x, batch, width, patches), perm=[0, 2, 1])
    sizes = g.op("Concat", g.op("Unsqueeze", batch, g.ints(0)), g.ints(-1), g.ints(-1), axis=0)
    token = g.expand(g.weight("class_token", 1, 1, width, spread=1), sizes, 3)
    x = g.op("Concat", token, x, axis=1)
    with g.scope("encoder"):
        x = g.op("Add", x, g.weight("encoder.pos_embedding", 1, patches + 1, width, spread=0.1))
        for layer in range(layers):
            name = f"encoder.layers.encoder_layer_{layer}"
            with g.scope("layers"), g.scope(f"encoder_layer_{layer}"):
                with g.scope("ln_1"):
                    y = g.layer_norm(x, name + ".ln_1", width, 1e-6)
                with g.scope("self_attention"):
                    y = packed_attention(g, y, name + ".self_attention", patches + 1, width, heads)
                x = g.op("Add", y, x)
                with g.scope("ln_2"):
                    y = g.layer_norm(x, name + ".ln_2", width, 1e-6)
                with g.scope("mlp"):
                    y = g.gelu(g.linear(y, name + ".mlp.0", width, hidden))
                    y = g.linear(y, name + ".mlp.3", hidden, width)
                x = g.op("Add", x, y)
        with g.scope("ln"):
            x = g.layer_norm(x, "encoder.ln", width, 1e-6)
    x = g.op("Gather", x, g.index(0), axis=1)
    with g.scope("heads"), g.scope("head"):
        g.output("output", g.gemm(x, "heads.head", width, classes), ["batch", classes])
    return g.model()


def packed_attention(g, x, name, tokens, width, heads):
    """nn.MultiheadAttention with one projection for q, k and v: tokens first, three slices out of one product."""
    x = g.op("Transpose", x, perm=[1, 0, 2])
    batch = g.size(x, 1)
    product = g.op("MatMul", x, g.weight(g.fold("MatMul"), width, 3 * width, spread=1 / width**0.5))
    packed = g.op("Add", g.weight(name + ".in_proj_bias", 3 * width, spread=0.1), product)
    sizes = g.op("Concat", g.ints(tokens), g.op("Unsqueeze", batch, g.ints(0)), g.ints(3), g.ints(width), axis=0)
    packed = g.op("Unsqueeze", g.op("Reshape", packed, sizes, allowzero=0), g.ints(0))
    packed = g.op("Squeeze", g.op("Transpose", packed, perm=[3, 1, 2, 0, 4]), g.ints(-2))
    split = []
    for part in range(3):
        y = g.op("Gather", packed, g.index(part), axis=0)
        rows = g.op("Unsqueeze", g.op("Mul", batch, g.index(heads)), g.ints(0))
        y = g.op("Reshape", y, g.op("Concat", g.ints(tokens), rows, g.ints(width // heads), axis=0), allowzero=0)
        split.append(g.op("Transpose", y, perm=[1, 0, 2]))
    q, k, v = (g.view(y, batch, heads, tokens, width // heads) for y in split)
    y = g.op("Transpose", g.attend(q, k, v), perm=[2, 0, 1, 3])
    rows = g.op("Unsqueeze", g.op("Mul", batch, g.index(tokens)), g.ints(0))
    y = g.op("Reshape", y, g.op("Concat", rows, g.ints(width), axis=0), allowzero=0)
    y = g.gemm(y, name + ".out_proj", width, width)
    sizes = g.op("Concat", g.ints(tokens), g.op("Unsqueeze", batch, g.ints(0)), g.ints(width), axis=0)
    return g.op("Transpose", g.op("Reshape", y, sizes, allowzero=0), perm=[1, 0, 2])
