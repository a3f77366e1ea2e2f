"""Primitives that are no operation of the compiler: put together of some, by the same functions of traced arrays that
NumPy's are made of, or here."""
from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np

from symplex._trace import elements as _elements, signals as _signals
from symplex._trace.graph import Graph, attribute_text
from symplex._trace.tracer import Tracer, compare, full, select, unary
from symplex.jax._emit import Emitter, Unsupported, Value

Build = Callable[..., Tracer]


def written(e: Emitter, build: Callable[..., Any], *x: Value) -> Any:
    """What `build` makes of traced arrays, in the program of `e`: a value, or a list of several."""
    with Graph() as graph:
        inputs = [graph.parameter(v.dtype, v.shape) for v in x]
        made = build(*inputs)
        graph.outputs = [made] if isinstance(made, Tracer) else list(made)
    known = {id(traced): v for traced, v in zip(inputs, x)}
    for node in graph.needed():
        attributes = ", ".join(f"{key} = {attribute_text(v)}" for key, v in node.attributes.items())
        values = e.emit_many(node.operation, [known[id(i)] for i in node.inputs], attributes,
                             [(r.dtype, r.shape) for r in node.results])
        known.update((id(r), v) for r, v in zip(node.results, values))
    return known[id(made)] if isinstance(made, Tracer) else [known[id(v)] for v in graph.outputs]


def _number(x: Tracer, given: float) -> Tracer:
    return full(x.shape, given, x.dtype)


# ---- erfc and its like ----
# erfc(x) = t e^(-x^2 + P(4 t - 2)), t = 2 / (2 + x), of Chebyshev's polynomials (Press et al., Numerical Recipes, 3rd
# edition, section 6.2.2), off by 1.2e-16 of the result at most, beside what is lost in x^2.
_ERFC = (-1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3, -9.46595344482036e-4,
         3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5, -1.624290004647e-6, 1.303655835580e-6,
         1.5626441722e-8, -8.5238095915e-8, 6.529054439e-9, 5.059343495e-9, -9.91364156e-10, -2.27365122e-10,
         9.6467911e-11, 2.394038e-12, -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13, 3.81e-16, 7.106e-15,
         -1.523e-15, -9.4e-17, 1.21e-16, -2.8e-17)


def erfc_f64(x: Tracer) -> Tracer:
    """1 - erf below one half, where nothing cancels."""
    t = _number(x, 2) / (_number(x, 2) + abs(x))
    y = _number(x, 4) * t - _number(x, 2)
    d, before = _number(x, 0), _number(x, 0)
    for factor in reversed(_ERFC[1:]):
        d, before = y * d - before + _number(x, factor), d
    power = _number(x, 0.5) * (_number(x, _ERFC[0]) + y * d) - before
    tail = t * unary("exponential", power - x * x)
    return select(compare(x, "lt", 0.5), _number(x, 1) - unary("erf", x), tail)


# Giles, Approximating the erfinv function (GPU Computing Gems, 2011), single precision: polynomials in w - 2.5 of
# w = -log(1 - x^2) below 5, in sqrt(w) - 3 from there on.
_ERF_INV = ((2.81022636e-08, -0.000200214257), (3.43273939e-07, 0.000100950558), (-3.5233877e-06, 0.00134934322),
            (-4.39150654e-06, -0.00367342844), (0.00021858087, 0.00573950773), (-0.00125372503, -0.0076224613),
            (-0.00417768164, 0.00943887047), (0.246640727, 1.00167406), (1.50140941, 2.83297682))


def _erf_inv(x: Tracer) -> Tracer:
    if x.dtype == np.float64:
        raise Unsupported("elements of float64")
    w = -_elements.log1p(-x * x)
    small = compare(w, "lt", 5)
    w = select(small, w - _number(x, 2.5), unary("sqrt", w) - _number(x, 3))
    made = None
    for near, far in _ERF_INV:
        factor = select(small, _number(x, near), _number(x, far))
        made = factor if made is None else factor + made * w
    edge = compare(abs(x), "eq", 1)
    return select(edge, x * _number(x, math.inf), made * x)


# ---- the gamma function: Lanczos' approximation with g = 7 and 8 terms ----
_G = 7.0
_LANCZOS_BASE = 0.99999999999980993227684700473478
_LANCZOS = (676.520368121885098567009190444019, -1259.13921672240287047156078755283, 771.3234287776530788486528258894,
            -176.61502916214059906584551354, 12.507343278686904814458936853, -0.13857109526572011689554707,
            9.984369578019570859563e-6, 1.50563273514931155834e-7)


def _lgamma(x: Tracer) -> Tracer:
    """Below one half by the reflection log(pi / |sin pi x|) - lgamma(1 - x)."""
    mirrored = compare(x, "lt", 0.5)
    z = select(mirrored, -x, x - _number(x, 1))
    series = _number(x, _LANCZOS_BASE)
    for k, factor in enumerate(_LANCZOS):
        series = series + _number(x, factor) / (z + _number(x, k + 1))
    t = _number(x, _G + 0.5) + z
    log_t = _number(x, math.log(_G + 0.5)) + _elements.log1p(z / _number(x, _G + 0.5))
    right = (z + _number(x, 0.5) - t / log_t) * log_t + _number(x, math.log(2 * math.pi) / 2) + unary("log", series)
    size = abs(x)
    part = size - unary("floor", size)
    part = select(compare(part, "gt", 0.5), _number(x, 1) - part, part)
    sine = unary("log", unary("sine", _number(x, math.pi) * part))
    left = select(compare(abs(sine), "lt", math.inf), _number(x, math.log(math.pi)) - sine - right, -sine)
    made = select(mirrored, left, right)
    return select(compare(size, "eq", math.inf), size, made)


def _digamma(x: Tracer) -> Tracer:
    """The derivative of the above; NaN at 0, -1, ... and at -infinity, as XLA has it."""
    mirrored = compare(x, "lt", 0.5)
    z = select(mirrored, -x, x - _number(x, 1))
    over, under = _number(x, 0), _number(x, _LANCZOS_BASE)
    for k, factor in enumerate(_LANCZOS):
        below = z + _number(x, k + 1)
        over = over - _number(x, factor) / (below * below)
        under = under + _number(x, factor) / below
    t = _number(x, _G + 0.5) + z
    log_t = _number(x, math.log(_G + 0.5)) + _elements.log1p(z / _number(x, _G + 0.5))
    right = log_t + over / under - _number(x, _G) / t
    part = x + abs(unary("floor", x + _number(x, 0.5)))
    angle = _number(x, math.pi) * part
    left = right - _number(x, math.pi) * unary("cosine", angle) / unary("sine", angle)
    pole = compare(x, "le", 0) & compare(x, "eq", unary("floor", x))
    return select(pole, _number(x, math.nan), select(mirrored, left, right))


REAL: dict[str, Build] = {
    "sinh": _elements.sinh, "cosh": _elements.cosh, "asinh": _elements.asinh, "acosh": _elements.acosh,
    "atanh": _elements.atanh, "atan": _elements.atan, "atan2": _elements.atan2, "asin": _elements.asin,
    "acos": _elements.acos, "cbrt": _signals.cbrt, "erf_inv": _erf_inv, "lgamma": _lgamma, "digamma": _digamma}
