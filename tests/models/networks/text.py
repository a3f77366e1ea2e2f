"""Networks of the transformers library, attention written out: BERT-base, GPT-2, a Llama block. Defaults are
the published sizes."""
import numpy
from onnx import TensorProto

from graph import INT64_MAX, Graph

SMALLEST = float(numpy.finfo(numpy.float32).min)


def split_heads(g, x, batch, length, heads, width):
    return g.op("Transpose", g.view(x, batch, length, heads, width), perm=[0, 2, 1, 3])


def join_heads(g, x, batch, length, width):
    return g.view(g.op("Transpose", x, perm=[0, 2, 1, 3]), batch, length, width)


def bert_base(length=128, width=768, heads=12, layers=12, hidden=3072, vocabulary=30522, positions=512, seed=6):
    g = Graph("bert_base", seed)
    ids = g.input("input_ids", ["batch", length], TensorProto.INT64)
    attention = g.input("attention_mask", ["batch", length], TensorProto.INT64)
    kinds = g.input("token_type_ids", ["batch", length], TensorProto.INT64)
    mask = g.op("Unsqueeze", g.op("Unsqueeze", attention, g.ints(1)), g.ints(2))
    mask = g.op("Sub", g.constant(1.0), g.op("Cast", mask, to=TensorProto.FLOAT))
    mask = g.op("Mul", mask, g.constant(SMALLEST))
    with g.scope("embeddings"):
        words = g.op("Gather", g.weight("embeddings.word_embeddings.weight", vocabulary, width, spread=1), ids)
        types = g.op("Gather", g.weight("embeddings.token_type_embeddings.weight", 2, width, spread=0.3), kinds)
        x = g.op("Add", words, types)
        places = g.constant(numpy.arange(length).reshape(1, length), numpy.int64)
        places = g.op("Gather", g.weight("embeddings.position_embeddings.weight", positions, width, spread=0.3), places)
        x = g.layer_norm(g.op("Add", x, places), "embeddings.LayerNorm", width, 1e-12)
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        with g.scope("encoder"), g.scope(f"layer.{layer}"):
            x = bert_layer(g, x, mask, name, length, width, heads, hidden)
    g.output("last_hidden_state", x, ["batch", length, width])
    with g.scope("pooler"):
        first = g.op("Gather", "last_hidden_state", g.index(0), axis=1)
        g.output("pooler_output", g.op("Tanh", g.gemm(first, "pooler.dense", width, width)), ["batch", width])
    return g.model()


def bert_layer(g, x, mask, name, length, width, heads, hidden):
    with g.scope("attention"), g.scope("self"):
        batch = g.size(x, 0)
        q, k, v = (split_heads(g, g.linear(x, f"{name}.attention.self.{part}", width, width), batch, length, heads,
                               width // heads)
                   for part in ("query", "key", "value"))
        scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = g.op("Div", scores, g.constant((width // heads) ** 0.5))
        y = g.op("MatMul", g.op("Softmax", g.op("Add", scores, mask), axis=-1), v)
        y = join_heads(g, y, batch, length, width)
    with g.scope("attention"), g.scope("output"):
        y = g.linear(y, f"{name}.attention.output.dense", width, width)
        x = g.layer_norm(g.op("Add", y, x), f"{name}.attention.output.LayerNorm", width, 1e-12)
    with g.scope("intermediate"):
        y = g.gelu(g.linear(x, f"{name}.intermediate.dense", width, hidden))
    with g.scope("output"):
        y = g.linear(y, f"{name}.output.dense", hidden, width)
        return g.layer_norm(g.op("Add", y, x), f"{name}.output.LayerNorm", width, 1e-12)


def conv_1d(g, x, name, batch, length, inside, outside, spread=1.0):
    """Conv1D of GPT-2: addmm on all rows."""
    rows = g.op("Reshape", x, g.ints(-1, inside), allowzero=0)
    weight = g.weight(name + ".weight", inside, outside, spread=spread / inside**0.5)
    rows = g.op("Gemm", rows, weight, g.weight(name + ".bias", outside, spread=0.1), alpha=1.0, beta=1.0)
    return g.view(rows, batch, length, outside)


def gelu_new(g, x):
    cube = g.op("Mul", g.op("Pow", x, g.constant(3.0)), g.constant(0.044715))
    inner = g.op("Tanh", g.op("Mul", g.op("Add", x, cube), g.constant((2 / numpy.pi) ** 0.5)))
    return g.op("Mul", g.op("Mul", x, g.constant(0.5)), g.op("Add", inner, g.constant(1.0)))


def gpt2(length=128, width=768, heads=12, layers=12, vocabulary=50257, positions=1024, seed=7):
    g = Graph("gpt2", seed)
    ids = g.input("input_ids", ["batch", length], TensorProto.INT64)
    with g.scope("transformer"):
        batch = g.size(ids, 0)
        ids = g.op("Reshape", ids, g.ints(-1, length), allowzero=0)
        words = g.weight("transformer.wte.weight", vocabulary, width, spread=1)
        places = g.op("Unsqueeze", g.op("Range", g.index(0), g.index(length), g.index(1)), g.ints(0))
        x = g.op("Add", g.op("Gather", words, ids),
                 g.op("Gather", g.weight("transformer.wpe.weight", positions, width, spread=0.3), places))
        allowed = numpy.tril(numpy.ones((1, 1, positions, positions), numpy.bool_))
        allowed = g.array("transformer.h.0.attn.bias", allowed)
        for layer in range(layers):
            name = f"transformer.h.{layer}"
            with g.scope(f"h.{layer}"):
                x = gpt2_block(g, x, name, allowed, batch, length, width, heads)
        x = g.layer_norm(x, "transformer.ln_f", width, 1e-5)
    with g.scope("lm_head"):
        logits = g.op("MatMul", x, g.weight(g.fold("MatMul"), width, vocabulary, spread=1 / width**0.5))
    g.output("logits", logits, ["batch", length, vocabulary])
    return g.model()


def gpt2_block(g, x, name, allowed, batch, length, width, heads):
    y = g.layer_norm(x, name + ".ln_1", width, 1e-5)
    with g.scope("attn"):
        y = conv_1d(g, y, name + ".attn.c_attn", batch, length, width, 3 * width)
        parts = g.op("Split", y, g.ints(width, width, width), outputs=3, axis=2)
        q, k, v = (split_heads(g, part, batch, length, heads, width // heads) for part in parts)
        scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = g.op("Div", scores, g.constant((width // heads) ** 0.5))
        mask = g.slice(g.slice(allowed, 0, length, 2), 0, length, 3)
        scores = g.op("Where", mask, scores, g.constant(SMALLEST))
        y = join_heads(g, g.op("MatMul", g.op("Softmax", scores, axis=-1), v), batch, length, width)
        y = conv_1d(g, y, name + ".attn.c_proj", batch, length, width, width)
    x = g.op("Add", y, x)
    y = g.layer_norm(x, name + ".ln_2", width, 1e-5)
    with g.scope("mlp"):
        y = gelu_new(g, conv_1d(g, y, name + ".mlp.c_fc", batch, length, width, 4 * width))
        y = conv_1d(g, y, name + ".mlp.c_proj", batch, length, 4 * width, width)
    return g.op("Add", x, y)


def rms_norm(g, x, name, width, epsilon):
    square = g.op("Pow", x, g.constant(2.0))
    mean = g.op("ReduceMean", square, axes=[-1], keepdims=1)
    root = g.op("Sqrt", g.op("Add", mean, g.constant(epsilon)))
    return g.op("Mul", g.around(name + ".weight", width), g.op("Mul", x, g.op("Div", g.constant([1.0]), root)))


def rotary(g, length, width, base):
    """cos and sin of the angles, computed from the positions as the module does."""
    frequency = g.array("rotary_emb.inv_freq", (base ** (-numpy.arange(0, width,
            2) / width)).astype(numpy.float32).reshape(1, width // 2, 1))
    places = g.op("Unsqueeze", g.op("Range", g.index(0), g.index(length), g.index(1)), g.ints(0))
    places = g.op("Cast", g.op("Unsqueeze", places, g.ints(1)), to=TensorProto.FLOAT)
    angles = g.op("Transpose", g.op("MatMul", frequency, places), perm=[0, 2, 1])
    angles = g.op("Concat", angles, angles, axis=-1)
    return tuple(g.op("Unsqueeze", g.op(kind, angles), g.ints(1)) for kind in ("Cos", "Sin"))


def rotate(g, x, cos, sin, width):
    left, right = g.slice(x, 0, width // 2, 3), g.slice(x, width // 2, INT64_MAX, 3)
    half = g.op("Concat", g.op("Neg", right), left, axis=-1)
    return g.op("Add", g.op("Mul", x, cos), g.op("Mul", half, sin))


def repeat(g, x, batch, heads, times, length, width):
    """repeat_kv: each of the key and value heads for `times` heads of queries."""
    sizes = [g.op("Unsqueeze", batch, g.ints(0))] + [g.ints(n) for n in (heads, times, length, width)]
    x = g.expand(g.op("Unsqueeze", x, g.ints(2)), g.op("Concat", *sizes, axis=0), 5)
    return g.view(x, batch, heads * times, length, width)


def llama_block(length=128, width=4096, heads=32, shared=8, hidden=14336, base=500000.0, seed=8):
    g = Graph("llama_block", seed)
    x = g.input("hidden_states", ["batch", length, width])
    each, batch = width // heads, g.size("hidden_states", 0)
    with g.scope("input_layernorm"):
        y = rms_norm(g, x, "input_layernorm", width, 1e-5)
    with g.scope("rotary_emb"):
        cos, sin = rotary(g, length, each, base)
    with g.scope("self_attn"):
        q, k, v = (split_heads(g, g.linear(y, f"self_attn.{part}_proj", width, count * each, bias=False), batch,
                               length, count, each)
                   for part, count in (("q", heads), ("k", shared), ("v", shared)))
        q, k = rotate(g, q, cos, sin, each), rotate(g, k, cos, sin, each)
        k, v = (repeat(g, part, batch, shared, heads // shared, length, each) for part in (k, v))
        mask = g.constant(numpy.triu(numpy.full((1, 1, length, length), SMALLEST), 1))
        y = join_heads(g, g.attend(q, k, v, mask), batch, length, width)
        y = g.linear(y, "self_attn.o_proj", width, width, bias=False)
    x = g.op("Add", x, y)
    with g.scope("post_attention_layernorm"):
        y = rms_norm(g, x, "post_attention_layernorm", width, 1e-5)
    with g.scope("mlp"):
        gate = g.silu(g.linear(y, "mlp.gate_proj", width, hidden, bias=False))
        y = g.op("Mul", gate, g.linear(y, "mlp.up_proj", width, hidden, bias=False))
        y = g.linear(y, "mlp.down_proj", hidden, width, bias=False)
    g.output("output", g.op("Add", x, y), ["batch", length, width])
    return g.model()
