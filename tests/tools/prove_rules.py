#!/usr/bin/env python3
"""Proofs of rewrite rules at bounded rank, by Z3.

The rule tests write pairs of programs, both sides of a rule on small random shapes (SX_PAIRS). Here every
element of both results is written out as a term over the elements of the parameters, and
  1. equal terms are a proof for every element type: the same operations in the same order;
  2. integers and bools: Z3 over 8-bit vectors; 3. exact rules, element by element: Z3 over IEEE 754 half precision;
  4. other rules: Z3 over the reals, divisors taken to be nonzero and roots to be of positive numbers; a
  constant is the simplest
     fraction it is the rounding of.
All elements of a pair are compared; elements that are the same terms but for the names of what they read are
proved once. What is assumed of divisors, roots and logarithms is shown to hold somewhere: a proof from
assumptions that nothing satisfies fails the run, as a counterexample does. Z3 is bounded by its own count of
steps, not by time, so that every machine writes the same table.

usage: prove_rules.py [--rule NAME] [--verbose]
       prove_rules.py --write docs/RULES.md     the table anew
       prove_rules.py --check docs/RULES.md     the table anew, in memory: exit 1 where the file is another
"""
import argparse, collections, concurrent.futures, difflib, fractions, itertools, json, os, re, resource, signal
import subprocess, sys, tempfile

try:
    import z3
except ImportError:
    sys.exit("the Python package z3 is not there: run deploy/install-deps.sh, then tests/tools/python.sh "
             "tests/tools/prove_rules.py")

BINARY = os.environ.get("SX_BINARY_DIR", "build/dev")
SOURCE = os.environ.get("SX_SOURCE_DIR", ".")
PAIRS = 4  # of a rule
STEPS = 2000000  # of Z3 for an element: its own count, the same on every machine
SECONDS = 200  # of the processor for a rule, where Z3 does not keep to that: others on the machine do not count
FLOAT = {"f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2"}
INTEGER = {"u8": (0, 255), "i8": (-128, 127), "i16": (-(1 << 15), (1 << 15) - 1),
           "i32": (-(1 << 31), (1 << 31) - 1), "i64": (-(1 << 63), (1 << 63) - 1)}


class Unknown(Exception):
    """An operation that is not written out here."""


# ---- programs ----

NODE = re.compile(r"\s*%(\w+) = (\w+)(?:\(([^)]*)\))?(?: \{(.*)\})? : (\w+)\[([\d, ]*)\]$")


def attributes(text):
    found = {}
    for name, value in re.findall(r'(\w+) = (\[[^\]]*\]|"[^"]*"|[^,\s]+)', text or ""):
        if value.startswith("["):
            found[name] = [v.strip() for v in value[1:-1].split(",") if v.strip()]
        else:
            found[name] = value.strip('"')
    return found


def read_program(path):
    nodes, outputs = [], None
    for line in open(path):
        match = NODE.match(line)
        if match:
            name, op, inputs, attr, dtype, dims = match.groups()
            shape = tuple(int(d) for d in dims.split(",") if d.strip())
            nodes.append((name, op, [i.strip()[1:] for i in (inputs or "").split(",") if i.strip()],
                          attributes(attr), dtype, shape))
        elif line.strip().startswith("return"):
            outputs = re.findall(r"%(\w+) as", line)
        elif "%" in line:
            raise Unknown("a line that is not read: " + line.strip())
    return nodes, outputs


# ---- terms: (operation, type, operands..), equal ones are one object ----

TERMS = {}


def term(*key):
    return TERMS.setdefault(key, key)


def number(text):
    return {"true": 1, "false": 0}.get(text) if text in ("true", "false") else float(text) if text in ("inf",
            "-inf", "nan") else fractions.Fraction(text)


def constant(dtype, value, negative=False):
    """`negative`: minus zero"""
    return term("number", dtype, value, "-" if negative and value == 0 else "")


def positions(shape):
    return itertools.product(*(range(n) for n in shape))


class Tensor:
    def __init__(self, dtype, shape, make):
        self.dtype, self.shape = dtype, shape
        self.at = {i: make(i) for i in positions(shape)}


ELEMENTWISE = set("""negate abs exponential log sqrt rsqrt tanh erf logistic sine cosine floor ceil
round_nearest_even sign not
add subtract multiply divide power remainder maximum minimum and or xor select compare
shift_left shift_right_arithmetic shift_right_logical""".split())
START = {"add": 0, "multiply": 1, "maximum": float("-inf"), "minimum": float("inf")}


def apply(op, dtype, *operands):
    return term(op, dtype, *operands)


def fold(reducer, dtype, elements):
    start = START[reducer]
    total = constant(dtype, fractions.Fraction(start) if start in (0, 1) else start)
    for e in elements:
        total = apply("step_" + reducer, dtype, total, e)
    return total


def rounded(dtype, value):
    if dtype != "f32":
        return value
    import struct
    return fractions.Fraction(struct.unpack("f", struct.pack("f", float(value)))[0])


def wide(dtype):
    return "f32" if dtype in FLOAT and dtype not in ("f64", "f32") else dtype


def converted(x, to):
    return x if x.dtype == to else Tensor(to, x.shape, lambda i: apply("convert", to, x.dtype, x.at[i]))


def along(shape, dims):
    kept = [d for d in range(len(shape)) if d not in dims]

    def row(index):
        ranges = [range(shape[d]) if d in dims else (index[kept.index(d)],) for d in range(len(shape))]
        return itertools.product(*ranges)
    return tuple(shape[d] for d in kept), row


def composite(op, x, attr, dtype, shape):
    """As core/ir/compose.c writes them: narrow types in f32."""
    own = wide(dtype) if op != "relu" else dtype
    x = [converted(t, own) for t in x]
    main = x[0]

    def c(v):
        return constant(own, rounded(own, fractions.Fraction(v)))

    def mul(a, b):
        return apply("multiply", own, a, b)

    def row_of(t, i, reducer, f=lambda e: e):
        ranges = [range(shape[d]) if d in dims else (i[d],) for d in range(len(shape))]
        return fold(reducer, own, [f(t[j]) for j in itertools.product(*ranges)])

    def each(f):
        return converted(Tensor(own, shape, f), dtype)
    if op == "relu":
        return each(lambda i: apply("maximum", own, constant(own, fractions.Fraction(0)), main.at[i]))
    if op == "silu":
        return each(lambda i: mul(main.at[i], apply("logistic", own, main.at[i])))
    if op == "gelu":
        return each(lambda i: mul(mul(main.at[i], c(0.5)),
                                  apply("add", own, apply("erf", own, mul(main.at[i], c(0.70710678118654752440))),
                                        c(1))))
    if op == "gelu_tanh":
        def tanh_form(i):
            v = main.at[i]
            inner = apply("add", own, v, mul(mul(mul(v, v), v), c(0.044715)))
            return mul(mul(v, c(0.5)), apply("add", own, apply("tanh", own, mul(inner, c(0.79788456080286535588))),
                                             c(1)))
        return each(tanh_form)
    if op not in ("softmax", "log_softmax", "layer_norm", "rms_norm"):
        raise Unknown(op)
    axis = int(attr["axis"])
    if op in ("softmax", "log_softmax"):
        dims = [axis]
        shifted = {i: apply("subtract", own, main.at[i], row_of(main.at, i, "maximum")) for i in positions(shape)}
        power = {i: apply("exponential", own, v) for i, v in shifted.items()}
        if op == "softmax":
            return each(lambda i: apply("divide", own, power[i], row_of(power, i, "add")))
        return each(lambda i: apply("subtract", own, shifted[i], apply("log", own, row_of(power, i, "add"))))
    dims = list(range(axis, len(shape)))
    count = 1
    for d in dims:
        count *= shape[d]

    def mean(t, i):
        return apply("divide", own, row_of(t, i, "add"), c(count))

    def root(t, i):
        square = {j: mul(t[j], t[j]) for j in t}
        return apply("rsqrt", own, apply("add", own, mean(square, i), c(float(attr["eps"]))))
    if op == "rms_norm":
        return each(lambda i: mul(mul(main.at[i], root(main.at, i)), x[1].at[i[axis:]]))
    if op == "layer_norm":
        centred = {i: apply("subtract", own, main.at[i], mean(main.at, i)) for i in positions(shape)}
        return each(lambda i: apply("add", own, mul(mul(centred[i], root(centred, i)), x[1].at[i[axis:]]),
                                    x[2].at[i[axis:]]))
    raise Unknown(op)


def contraction(a, b, attr, dtype, shape):
    lists = {k: [int(v) for v in attr.get(k, [])] for k in ("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract")}
    free_a = [d for d in range(len(a.shape)) if d not in lists["lhs_batch"] + lists["lhs_contract"]]
    free_b = [d for d in range(len(b.shape)) if d not in lists["rhs_batch"] + lists["rhs_contract"]]

    def element(i):
        n = len(lists["lhs_batch"])
        at_a, at_b = [0] * len(a.shape), [0] * len(b.shape)
        for k in range(n):
            at_a[lists["lhs_batch"][k]] = at_b[lists["rhs_batch"][k]] = i[k]
        for k, d in enumerate(free_a):
            at_a[d] = i[n + k]
        for k, d in enumerate(free_b):
            at_b[d] = i[n + len(free_a) + k]
        total = constant(dtype, fractions.Fraction(0))
        for sum_index in itertools.product(*(range(a.shape[d]) for d in lists["lhs_contract"])):
            for k, v in enumerate(sum_index):
                at_a[lists["lhs_contract"][k]] = at_b[lists["rhs_contract"][k]] = v
            total = apply("fma", dtype, total, a.at[tuple(at_a)], b.at[tuple(at_b)])
        return total
    return Tensor(dtype, shape, element)


def flat(shape, i):
    at = 0
    for n, k in zip(shape, i):
        at = at * n + k
    return at


def evaluate(op, name, x, attr, dtype, shape):
    if op == "parameter":
        return Tensor(dtype, shape, lambda i: term("element", dtype, attr["name"], i))
    if op == "constant":
        values = attr["data"] if isinstance(attr["data"], list) else [attr["data"]]
        if any(v.startswith("0x") for v in values) or (len(values) == 1 and len(values[0]) > 40):
            raise Unknown("bytes")

        def known(i):
            text = values[flat(shape, i) if len(values) > 1 else 0]
            value = number(text)  # the shortest decimal that reads back as the number stored
            value = rounded(dtype, fractions.Fraction(float(value))) if dtype in ("f32",
                    "f64") and isinstance(value, fractions.Fraction) else value
            return constant(dtype, value, text.startswith("-"))
        return Tensor(dtype, shape, known)
    if op == "iota":
        return Tensor(dtype, shape, lambda i: constant(dtype, fractions.Fraction(i[int(attr["axis"])])))
    if op == "compare":
        return Tensor(dtype, shape, lambda i: apply("compare_" + attr["direction"], x[0].dtype, x[0].at[i], x[1].at[i]))
    if op in ELEMENTWISE:
        return Tensor(dtype, shape, lambda i: apply(op, dtype, *(t.at[i] for t in x)))
    if op == "convert":
        return converted(x[0], dtype)
    if op == "reshape":
        elements = [x[0].at[i] for i in positions(x[0].shape)]
        return Tensor(dtype, shape, lambda i: elements[flat(shape, i)])
    if op == "transpose":
        perm = [int(v) for v in attr.get("perm", [])]
        return Tensor(dtype, shape, lambda i: x[0].at[tuple(i[perm.index(d)] for d in range(len(perm)))])
    if op == "broadcast_in_dim":
        dims = [int(v) for v in attr.get("dims", [])]
        return Tensor(dtype, shape, lambda i: x[0].at[tuple(0 if x[0].shape[k] == 1 else i[d]
                                                            for k, d in enumerate(dims))])
    if op == "slice":
        start, stride = [int(v) for v in attr.get("start", [])], [int(v) for v in attr.get("stride", [])]
        return Tensor(dtype, shape, lambda i: x[0].at[tuple(start[d] + stride[d] * i[d] for d in range(len(i)))])
    if op == "concatenate":
        axis = int(attr["axis"])

        def part(i):
            at = i[axis]
            for t in x:
                if at < t.shape[axis]:
                    return t.at[i[:axis] + (at,) + i[axis + 1:]]
                at -= t.shape[axis]
        return Tensor(dtype, shape, part)
    if op == "reduce":
        dims = [int(v) for v in attr["dims"]]
        _, row = along(x[0].shape, dims)
        return Tensor(dtype, shape, lambda i: fold(attr["reducer"], dtype, [x[0].at[j] for j in row(i)]))
    if op == "dot_general":
        return contraction(x[0], x[1], attr, dtype, shape)
    if op == "gather":
        axis, rank = int(attr["axis"]), len(x[1].shape)
        return Tensor(dtype, shape, lambda i: apply("gather", dtype, x[1].at[i[axis:axis + rank]],
                                                    *(x[0].at[i[:axis] + (k,) + i[axis + rank:]]
                                                      for k in range(x[0].shape[axis]))))
    return composite(op, x, attr, dtype, shape)


def both_sides(path):
    nodes, outputs = read_program(path)
    value = {}
    for name, op, inputs, attr, dtype, shape in nodes:
        value[name] = evaluate(op, name, [value[i] for i in inputs], attr, dtype, shape)
    return value[outputs[0]], value[outputs[1]]


# ---- Z3 ----

class Reals:
    """Every type is the reals; a conversion between floats is the identity."""

    def __init__(self):
        self.known, self.side = {}, []

    def function(self, name, *operands):
        sorts = [z3.BoolSort() if z3.is_bool(o) else z3.RealSort() for o in operands]
        return z3.Function(name, *sorts, z3.RealSort())(*operands)

    def of(self, t):
        if t not in self.known:
            self.known[t] = self.make(t)
        return self.known[t]

    def make(self, t):
        op, dtype = t[0], t[1]
        if op == "number":
            if dtype == "bool":
                return z3.BoolVal(t[2] != 0)
            if isinstance(t[2], float):
                raise Unknown("an infinity among the reals")
            simple = t[2].limit_denominator(4096)  # 0.2 in f32 stands for 1/5
            near = abs(simple - t[2]) <= abs(t[2]) / (1 << 21)
            return z3.RealVal(str(simple if near else t[2]))
        if op == "element":
            name = "%s%s" % (t[2], list(t[3]))
            return z3.Bool(name) if dtype == "bool" else z3.Real(name)
        if op == "convert":
            x = self.of(t[3])
            if t[2] in FLOAT and dtype in FLOAT:
                return x
            return self.function("to_" + dtype, x)
        if op in ("step_maximum", "step_minimum") and isinstance(t[2][2], float) and t[2][0] == "number":
            return self.of(t[3])
        x = [self.of(o) for o in t[2:]]
        if op.startswith("compare_"):
            a, b = x
            return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b,
                    "ge": a >= b}[op[8:]] if dtype != "bool" else {"eq": a == b, "ne": a != b}[op[8:]]
        if dtype == "bool":
            table = {"and": z3.And, "or": z3.Or, "xor": z3.Xor, "not": z3.Not, "add": z3.Or, "multiply": z3.And,
                     "step_add": z3.Or, "step_multiply": z3.And, "select": z3.If}
            if op not in table:
                raise Unknown(op)
            return table[op](*x)
        if op in ("add", "step_add"):
            return x[0] + x[1]
        if op == "subtract":
            return x[0] - x[1]
        if op in ("multiply", "step_multiply"):
            return x[0] * x[1]
        if op == "fma":
            return x[0] + x[1] * x[2]
        if op == "divide":
            self.side.append(x[1] != 0)
            return x[0] / x[1]
        if op == "negate":
            return -x[0]
        if op == "abs":
            return z3.If(x[0] < 0, -x[0], x[0])
        if op in ("maximum", "step_maximum"):
            return z3.If(x[0] > x[1], x[0], x[1])
        if op in ("minimum", "step_minimum"):
            return z3.If(x[0] < x[1], x[0], x[1])
        if op == "select":
            return z3.If(*x)
        if op == "sign":
            return z3.If(x[0] > 0, z3.RealVal(1), z3.If(x[0] < 0, z3.RealVal(-1), z3.RealVal(0)))
        if op in ("sqrt", "rsqrt"):
            root = self.function("sqrt", x[0])
            self.side += [root >= 0, z3.Implies(x[0] >= 0, root * root == x[0])]
            if op == "rsqrt":
                self.side += [x[0] > 0, root > 0]
                return 1 / root
            return root
        if op in ("exponential", "logistic", "tanh"):
            return self.exponentials(op, x[0])
        if op == "log":
            self.side.append(x[0] > 0)
            return self.function("log", x[0])
        if op == "floor":
            return z3.ToReal(z3.ToInt(x[0]))
        if op == "ceil":
            return -z3.ToReal(z3.ToInt(-x[0]))
        if op == "power" and t[3][0] == "number" and t[3][2] in (0, 1, 2, 3, 4):
            power = z3.RealVal(1)
            for _ in range(int(t[3][2])):
                power = power * x[0]
            return power
        if op == "power" and t[3][0] == "number" and t[3][2] in (-1, fractions.Fraction(1, 2),
                fractions.Fraction(-1, 2)):
            self.side.append(x[0] > 0)
            return 1 / x[0] if t[3][2] == -1 else self.make(term("sqrt" if t[3][2] > 0 else "rsqrt", t[1], t[2]))
        return self.function(op, *x)

    def exp(self, x):
        x = z3.simplify(x, som=True)
        value = self.function("exp", x)
        self.side.append(value > 0)
        for other, power in getattr(self, "powers", []):
            total = z3.simplify(x + other, som=True)
            if z3.is_rational_value(total) and total.as_fraction() == 0:
                self.side.append(value * power == 1)
            double = z3.simplify(x - 2 * other, som=True)
            if z3.is_rational_value(double) and double.as_fraction() == 0:
                self.side.append(value == power * power)
            half = z3.simplify(other - 2 * x, som=True)
            if z3.is_rational_value(half) and half.as_fraction() == 0:
                self.side.append(power == value * value)
        self.powers = getattr(self, "powers", []) + [(x, value)]
        return value

    def exponentials(self, op, x):
        if op == "exponential":
            return self.exp(x)
        if op == "logistic":
            return 1 / (1 + self.exp(-x))
        power = self.exp(2 * x)
        return (power - 1) / (power + 1)


class Vectors(Reals):
    """Integers of 8 bits."""

    def make(self, t):
        op, dtype = t[0], t[1]
        signed = dtype != "u8"
        if dtype == "bool" and not op.startswith("compare_"):
            return Reals.make(self, t)
        if op == "number":
            return z3.BitVecVal(int(t[2]), 8)
        if op == "element":
            return z3.BitVec("%s%s" % (t[2], list(t[3])), 8)
        if op in ("step_maximum", "step_minimum") and isinstance(t[2][2], float) and t[2][0] == "number":
            return self.of(t[3])
        x = [self.of(o) for o in t[2:]] if op != "convert" else []
        below = (lambda a, b: a < b) if signed else z3.ULT
        table = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
                 "and": lambda a, b: a & b,
                 "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "not": lambda a: ~a, "negate": lambda a: -a,
                 # SMT-LIB takes numbers of places as unsigned ones, too, and those from 8 on as all of them
                 "shift_left": lambda a, b: a << b, "shift_right_arithmetic": lambda a, b: a >> b,
                 "shift_right_logical": z3.LShR,
                 "select": z3.If,
                 "fma": lambda s, a, b: s + a * b, "maximum": lambda a, b: z3.If(below(b, a), a, b),
                 "minimum": lambda a, b: z3.If(below(a, b), a, b),
                 "abs": lambda a: z3.If(a < 0, -a, a) if signed else a, "floor": lambda a: a, "ceil": lambda a: a,
                 "round_nearest_even": lambda a: a,
                 "sign": lambda a: z3.If(below(z3.BitVecVal(0, 8), a), z3.BitVecVal(1, 8),
                                         z3.If(a == 0, z3.BitVecVal(0, 8), z3.BitVecVal(255, 8)))}
        if op.startswith("compare_"):
            a, b = x
            return {"eq": a == b, "ne": a != b, "lt": below(a, b), "gt": below(b, a), "le": z3.Not(below(b, a)),
                    "ge": z3.Not(below(a, b))}[op[8:]]
        op = op[5:] if op.startswith("step_") else op
        if op not in table:
            raise Unknown(op)
        return table[op](*x)


class Halves(Reals):
    """IEEE 754 half precision, one rounding an operation."""
    SORT = z3.Float16()

    def make(self, t):
        op, dtype = t[0], t[1]
        if dtype == "bool" and not op.startswith("compare_"):
            return Reals.make(self, t)
        if op == "number":
            value = t[2]
            if isinstance(value, float):
                return z3.fpPlusInfinity(self.SORT) if value > 0 else z3.fpMinusInfinity(self.SORT)
            negative_zero = value == 0 and t[3].startswith("-")
            return z3.fpMinusZero(self.SORT) if negative_zero else z3.FPVal(float(value), self.SORT)
        if op == "element":
            return z3.FP("%s%s" % (t[2], list(t[3])), self.SORT)
        mode = z3.RNE()
        table = {"add": lambda a, b: z3.fpAdd(mode, a, b), "subtract": lambda a, b: z3.fpSub(mode, a, b),
                 "multiply": lambda a, b: z3.fpMul(mode, a, b),
                 "divide": lambda a, b: z3.fpDiv(mode, a, b), "negate": z3.fpNeg, "abs": z3.fpAbs,
                 "sqrt": lambda a: z3.fpSqrt(mode, a),
                 "rsqrt": lambda a: z3.fpDiv(mode, z3.FPVal(1, self.SORT), z3.fpSqrt(mode, a)),
                 "maximum": lambda a, b: z3.If(z3.Or(z3.fpIsNaN(a), z3.fpGT(a, b)), a, b),
                 "minimum": lambda a, b: z3.If(z3.Or(z3.fpIsNaN(a), z3.fpLT(a, b)), a, b), "select": z3.If,
                 "fma": lambda s, a, b: z3.fpFMA(mode, a, b, s),
                 "floor": lambda a: z3.fpRoundToIntegral(z3.RTN(), a),
                 "ceil": lambda a: z3.fpRoundToIntegral(z3.RTP(), a),
                 "round_nearest_even": lambda a: z3.fpRoundToIntegral(z3.RNE(), a)}
        x = [self.of(o) for o in t[2:]] if op != "convert" else []
        if op.startswith("compare_"):
            a, b = x
            return {"eq": z3.fpEQ(a, b), "ne": z3.Not(z3.fpEQ(a, b)), "lt": z3.fpLT(a, b), "le": z3.fpLEQ(a, b),
                    "gt": z3.fpGT(a, b), "ge": z3.fpGEQ(a, b)}[op[8:]]
        op = op[5:] if op.startswith("step_") else op
        if op not in table:
            raise Unknown(op)
        return table[op](*x)


def types_of(t, seen, types):
    if isinstance(t, tuple) and t and t not in seen and len(t) > 1 and isinstance(t[1], str):
        seen.add(t)
        types.add(t[1])
        if t[0] not in ("number", "element"):
            for o in t[2:]:
                types_of(o, seen, types)


def canonical(pair):
    """The pair with elements named by the order in which they are met: what is proved of it is proved of every
    renaming."""
    names, made = {}, {}

    def walk(t):
        if t not in made:
            if t[0] == "element":
                made[t] = term("element", t[1], "e", (names.setdefault(t, len(names)),))
            elif t[0] == "number":
                made[t] = t
            else:
                made[t] = term(t[0], t[1], *(walk(o) if isinstance(o, tuple) else o for o in t[2:]))
        return made[t]
    return walk(pair[0]), walk(pair[1])


def solver_of(*assertions):
    solver = z3.Solver()
    solver.set("rlimit", STEPS)
    solver.add(*assertions)
    return solver


def satisfiable(conversion):
    """Does anything satisfy what is assumed? True, False, or None: no answer. Z3 finds few roots by itself: it
    is given elements."""
    if not conversion.side:
        return True
    outcome = solver_of(*conversion.side).check()
    if outcome != z3.unknown:
        return outcome == z3.sat
    elements = [v for t, v in conversion.known.items() if t[0] == "element" and z3.is_real(v)]
    for value in (lambda k: 1, lambda k: 4, lambda k: (k + 1) ** 2, lambda k: k + 1):
        fixed = [(v, z3.RealVal(value(k))) for k, v in enumerate(elements)]
        if solver_of(*(z3.simplify(z3.substitute(c, *fixed)) for c in conversion.side)).check() == z3.sat:
            return True
    return None


def attempt(theory, pair):
    """One element: proved, or what stands in the way; with the values of a counterexample"""
    try:
        conversion = theory()
        goal = conversion.of(pair[0]) != conversion.of(pair[1])
        assumed = satisfiable(conversion)
    except Unknown as unknown:
        return str(unknown), None
    except (z3.Z3Exception, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        return "not written out: %s" % type(error).__name__, None
    if assumed is False:
        return "vacuous", "nothing satisfies %s" % conversion.side
    if z3.is_false(z3.simplify(goal)):
        return ("proved" if assumed else "no answer on what is assumed"), None
    solver = solver_of(*conversion.side)
    solver.add(goal)
    outcome = solver.check()
    if outcome == z3.sat:
        return "counterexample", str(solver.model())
    if outcome == z3.unknown:
        return "no answer", None
    return ("proved" if assumed else "no answer on what is assumed"), None


def has_functions(pairs):
    seen, types, free = set(), set(), set()
    for pair in pairs:
        for t in pair:
            types_of(t, seen, types)
    for t in seen:
        if t[0] in ("erf", "log", "sine", "cosine", "power", "remainder", "round_nearest_even", "gather", "convert",
                    "exponential", "tanh", "logistic", "sqrt", "rsqrt"):
            free.add(t[0])
    return types, free


def prove(path, rule_class):
    """How the elements of a pair were proved, or why one was not; how many were, of how many; a counterexample"""
    left, right = both_sides(path)
    if left.dtype != right.dtype or left.shape != right.shape:
        return "counterexample", 0, 1, "results of two types"
    count = len(left.at)
    pairs = [canonical((left.at[i], right.at[i])) for i in left.at if left.at[i] is not right.at[i]]
    if not pairs:
        return "same operations", count, count, None
    types, free = has_functions(pairs)
    numbers = types - {"bool"}
    if not numbers & FLOAT and not (numbers and "convert" in free):
        theory, name = Vectors, "8-bit vectors"
    elif rule_class == "exact" and not numbers - FLOAT:
        theory, name = Halves, "half precision"
    else:
        theory, name = Reals, "reals"
    shown = count - len(pairs)
    for pair, copies in collections.Counter(pairs).items():
        outcome, model = attempt(theory, pair)
        if outcome == "counterexample" and theory is Reals and free:
            outcome, model = "functions without algebra: " + " ".join(sorted(free)), None
        if outcome != "proved":
            return outcome, shown, count, model
        shown += copies
    return name, shown, count, None


def write_pairs(folder):
    count = 0
    for shard in range(1, 5):
        program = os.path.join(BINARY, "bin", "core.rules.test_rules_%d" % shard)
        env = dict(os.environ, SX_PAIRS=folder, SX_INSTANCES=str(PAIRS), SX_SEED="5", CK_DEFAULT_TIMEOUT="200")
        subprocess.run([program], env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return count


GOOD = ("same operations", "8-bit vectors", "half precision", "reals")


def judge(rule, folder):
    """What holds of the pairs of a rule; a counterexample to one is one to the rule."""
    results, shown, total = [], 0, 0
    for k in range(PAIRS):
        path = os.path.join(folder, "%s-%d.sx" % (rule["name"], k))
        if not os.path.exists(path):
            break
        TERMS.clear()
        try:
            outcome, proved, count, model = prove(path, rule["class"])
        except Unknown as unknown:
            outcome, proved, count, model = "not written out: %s" % unknown, 0, 0, None
        if outcome in ("counterexample", "vacuous"):
            return outcome, "%s\n%s\n%s" % (path, open(path).read(), model)
        results.append(outcome)
        shown, total = shown + proved, total + count
    if not results:
        return "no small pair", None
    proofs = [r for r in results if r in GOOD]
    if len(proofs) == len(results):
        assert shown == total
        kinds = collections.Counter(proofs)
        return "proved: %s; %d elements" % (", ".join("%s (%d)" % (k, kinds[k]) for k in GOOD if k in kinds),
                                            total), None
    return "tested; %s%s" % (next(r for r in results if r not in GOOD),
                             "; %d of %d elements proved" % (shown, total) if shown else ""), None


def judge_apart(rule, folder):
    """In a process of its own, which is ended where Z3 does not keep to its bound."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        try:
            outcome = judge(rule, folder)
        except Exception as error:  # the folder belongs to the parent: nothing may unwind to it
            outcome = "tested; not written out: %s" % type(error).__name__, None
        with os.fdopen(writer, "w") as out:
            out.write(json.dumps(outcome) + "\n")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.readline()  # its end may be open in a child that was forked meanwhile
    os.waitpid(child, 0)
    return tuple(json.loads(text)) if text else ("tested; no answer", None)


def range_of(rule):
    return "%s: %s" % (rule["range"], rule["range_why"]) if "range_why" in rule else rule["range"]


def row(rule, verdict):
    left = "`%s`" % rule["left"] if rule.get("left") else "a kernel"
    right = "`%s`" % rule["right"] if rule.get("right") else "computed"
    return "| %s | %s | %s | %s | %s | %s |" % (rule["name"], rule["class"], range_of(rule), left, right, verdict)


def report(rows, proved):
    lines = ["# Rewrite rules", "",
             "Written by `python3 tests/tools/prove_rules.py --write docs/RULES.md`, and compared with what "
             "that writes by the test `tools/prove_rules`; `symplex-client rules` lists",
             "the table of the program at hand.", "",
             "Every rule is tested on 1,000 random instances (`tests/core/rules/rule_trial.h`): `exact` ones "
             "bit for bit on extreme values, the others by",
             "residues mod 2^31 - 1 and in two fields, mod 2147483579 and 1073741789, where exponentials have "
             "their algebra, or in doubles; and on 100 instances of symbolic extents. Beside that, up to %d "
             "small instances of each are written out element by element and proved equal for" % PAIRS,
             "all values: by *same operations* in the same order (which holds for every element type), over "
             "*8-bit vectors*, over IEEE 754 *half precision*",
             "or over the *reals* (divisors nonzero, arguments of roots positive, constants unrounded: shown to "
             "be satisfiable), by Z3 %s with %d of its steps for each element. A proof is one for the shapes"
             % (z3.get_version_string(), STEPS),
             "written out, of all elements: their number is given; where not all are proved, how many.", "",
             "%d of %d rules are proved so; of the others the last column says why not." % (proved, len(rows)), "",
             "*range* is what a rule does to the values between operands and result "
             "([IR.md](IR.md#the-range-of-values-in-between)); rules that move it are off unless asked for.", "",
             "| rule | class | range | left side | right side | proof |", "|---|---|---|---|---|---|"]
    lines += [row(rule, verdict) for rule, verdict in rows]
    return "\n".join(lines) + "\n"


def verdict_of(rule, folder):
    if "left" not in rule:
        return "tested (tests/core/fuse/test_rewrite.c)", None
    if rule["class"] == "approximate":
        return "tested: its bound on a sweep", None
    return judge_apart(rule, folder)


def check(path, text):
    """Prints the lines of the file that are others than those of `text`; true where there are none."""
    with open(path, encoding="utf-8") as file:
        old = file.read().splitlines()
    changed = [line for line in difflib.unified_diff(old, text.splitlines(), path, "as it is now", lineterm="", n=0)]
    for line in changed:
        print(line)
    if changed:
        print("%s has drifted: python3 tests/tools/prove_rules.py --write %s" % (path, path))
    return not changed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write")
    parser.add_argument("--check")
    parser.add_argument("--rule")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    listing = subprocess.run([os.path.join(BINARY, "bin", "symplex-client"), "rules", "--json"], check=True,
                             capture_output=True)
    rules = [r for r in json.loads(listing.stdout)["rules"] if args.rule in (None, r["name"])]
    with tempfile.TemporaryDirectory() as folder:
        write_pairs(folder)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            verdicts = list(pool.map(lambda rule: verdict_of(rule, folder), rules))
    rows = [(rule, verdict) for rule, (verdict, _) in zip(rules, verdicts)]
    failures = ["%s: %s: %s" % (rule["name"], verdict, why) for rule, (verdict, why) in zip(rules, verdicts) if why]
    proved = sum(verdict.startswith("proved") for _, verdict in rows)
    if args.verbose or args.rule:
        for rule, verdict in rows:
            print("%s: %s" % (rule["name"], verdict))
    text = report(rows, proved)
    if args.write:
        with open(args.write, "w", encoding="utf-8") as out:
            out.write(text)
    same = args.check is None or check(args.check, text)
    print("%d of %d rules proved, %d refuted" % (proved, len(rows), len(failures)))
    for failure in failures:
        print(failure)
    sys.exit(1 if failures or not same else 0)


if __name__ == "__main__":
    main()
