"""Programs as calls inside of JAX's own: a primitive that XLA executes as a custom call, with rules for vmap and
reverse mode, both of which make further programs."""
from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Sequence

import jax
import numpy as np
from jax.extend import core
from jax.interpreters import batching, mlir

from symplex import _c
from symplex._compile import compile
from symplex._errors import CompileError, InputError, LimitExceeded, Unimplemented
from symplex._module import Module
from symplex.jax import _keys
from symplex.jax._emit import Unsupported
from symplex.jax._lower import lower
import symplex.jax._random  # noqa: F401
from symplex.jax._parts import split

_TARGET = "symplex_module"
_REASONS_MAX = 6
_modules: dict[Any, tuple[Module, int]] = {}  # by text and options; they stay, as executables call them


class Options:
    """What a function was decorated with; a program keeps it for all that is derived from it."""

    def __init__(self, name: str, strict: bool, compiling: dict[str, Any]) -> None:
        self.name, self.strict, self.compiling = name, strict, compiling
        self._told: set[str] = set()

    def tell(self, reasons: Sequence[str], part: bool) -> None:
        """Once for each reason: what XLA computes, a part of the function or all of it."""
        new = [reason for reason in reasons if reason not in self._told]
        if not new:
            return
        more = f" and {len(new) - _REASONS_MAX} more" if len(new) > _REASONS_MAX else ""
        what = ", ".join(new[:_REASONS_MAX]) + more
        if self.strict:
            raise Unimplemented(f"{self.name}: {what} cannot be compiled (strict=True)")
        self._told.update(new)
        warnings.warn(f"symplex: {'a part of ' if part else ''}{self.name} is left to XLA: {what} cannot be compiled",
                      RuntimeWarning, stacklevel=2)


class Program:
    """A jaxpr without constants, and what is made of it. `text` None: a primitive is not known, XLA computes it, and
    what stands around it are programs of their own."""

    def __init__(self, jaxpr: core.ClosedJaxpr, options: Options) -> None:
        self.jaxpr, self.options = jaxpr, options
        self.batched: dict[Any, Program] = {}
        self.pair: Any = None
        self.text: str | None = None
        self._by_xla: Callable[..., Any] = core.jaxpr_as_fun(jaxpr)
        try:
            self.text = lower(jaxpr) if jaxpr.out_avals else None
        except Unsupported:
            self._split()

    def _split(self) -> None:
        whole = split(self.jaxpr)
        known = any(part.known for part in whole.parts)
        self.options.tell(whole.reasons, known)
        if known:
            calls = [Program(part.jaxpr, self.options) if part.known else core.jaxpr_as_fun(part.jaxpr)
                     for part in whole.parts]
            self._by_xla = lambda *leaves: whole.run(calls, leaves)

    def module(self) -> tuple[Module, int]:
        """The compiled program, and its number for XLA."""
        key = self.text, tuple(sorted((k, repr(v)) for k, v in self.options.compiling.items()))
        if key not in _modules:
            module = compile(self.text, **self.options.compiling)
            _modules[key] = module, _c.xla_register(module)
        return _modules[key]

    def __call__(self, *leaves: Any) -> list[Any]:
        if self.text is None:
            return self._by_xla(*leaves)
        return call_p.bind(*leaves, program=self)


def hoisted(closed: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """Arrays that a function closes over become its first inputs: a program holds no weights."""
    jaxpr = closed.jaxpr
    if not jaxpr.constvars:
        return closed
    jaxpr = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
    return core.ClosedJaxpr(jaxpr, [])


# ---- the primitive ----
call_p = core.Primitive("symplex")
call_p.multiple_results = True


@call_p.def_impl
def _execute(*leaves: Any, program: Program) -> Any:
    return jax.jit(functools.partial(call_p.bind, program=program))(*leaves)


@call_p.def_abstract_eval
def _abstract(*leaves: Any, program: Program) -> Any:
    return program.jaxpr.out_avals


@functools.cache
def _target() -> str:
    jax.ffi.register_ffi_target(_TARGET, _c.xla_handler(), platform="cpu")
    return _TARGET


def _lowering(ctx: Any, *operands: Any, program: Program) -> Any:
    target = _target()
    try:
        module, number = program.module()
    except (Unimplemented, LimitExceeded, CompileError, InputError) as error:
        program.options.tell([str(error)], True)
        return mlir.lower_fun(core.jaxpr_as_fun(program.jaxpr), multiple_results=True)(ctx, *operands)
    used = [int(tensor.name[len("x"):]) for tensor in module.inputs]
    made = [int(tensor.name[len("out"):]) for tensor in module.outputs]  # a module has an order of its own
    inner = ctx.replace(avals_in=[_keys.words(ctx.avals_in[i]) for i in used],
                        avals_out=[_keys.words(ctx.avals_out[i]) for i in made])
    results = jax.ffi.ffi_lowering(target)(inner, *[operands[i] for i in used], module=np.int64(number))
    return [results[made.index(i)] for i in range(len(made))]


mlir.register_lowering(call_p, _lowering, platform="cpu")


def _batched(leaves: Sequence[Any], dims: Sequence[Any], *, program: Program) -> Any:
    size = next(x.shape[d] for x, d in zip(leaves, dims) if d is not None)
    key = size, tuple(dims)
    if key not in program.batched:
        whole = jax.vmap(core.jaxpr_as_fun(program.jaxpr), in_axes=list(dims))
        program.batched[key] = Program(jax.make_jaxpr(whole)(*leaves), program.options)
    results = program.batched[key](*leaves)
    return results, [0] * len(results)


batching.primitive_batchers[call_p] = _batched


# ---- reverse mode: a program that also gives what the backward one needs, and the backward one ----
def _is_real(aval: Any) -> bool:
    return not _keys.is_key(aval) and np.dtype(aval.dtype).kind not in "iub"


class _Pair:
    """`kept`: where each residual is, ("input", k) or ("result", k) of the forward program."""

    def __init__(self, program: Program) -> None:
        inputs, results = program.jaxpr.in_avals, program.jaxpr.out_avals
        self.real, self.real_results = [_is_real(a) for a in inputs], [_is_real(a) for a in results]
        self.count = len(results)
        box: list[Any] = []

        def forward(*leaves: Any) -> list[Any]:
            made, pull = jax.vjp(core.jaxpr_as_fun(program.jaxpr), *leaves)
            residuals, tree = jax.tree_util.tree_flatten(pull)
            box[:] = [tree, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in residuals]]
            return [*made, *residuals]

        closed = jax.make_jaxpr(forward)(*inputs)
        tree, residuals = box
        self.forward = self._trim(closed, program.options)

        def backward(*leaves: Any) -> list[Any]:
            pull = jax.tree_util.tree_unflatten(tree, leaves[:len(residuals)])
            given = iter(leaves[len(residuals):])
            slopes = pull([next(given) if real else np.zeros(aval.shape, jax.dtypes.float0)
                           for real, aval in zip(self.real_results, results)])
            return [x for x, real in zip(slopes, self.real) if real]

        slopes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a, real in zip(results, self.real_results) if real]
        self.backward = Program(jax.make_jaxpr(backward)(*residuals, *slopes), program.options)

    def _trim(self, closed: core.ClosedJaxpr, options: Options) -> Program:
        """A residual that is an input, or a result already, is no result of its own."""
        jaxpr = closed.jaxpr
        place = {v: ("input", i) for i, v in enumerate(jaxpr.invars)}
        outs = list(jaxpr.outvars[:self.count])
        self.kept = []
        for v in jaxpr.outvars[self.count:]:
            if isinstance(v, core.Literal) or v not in place:
                outs.append(v)
                found = "result", len(outs) - 1
                if not isinstance(v, core.Literal):
                    place[v] = found
            self.kept.append(found if isinstance(v, core.Literal) else place[v])
        return Program(core.ClosedJaxpr(jaxpr.replace(outvars=outs), closed.consts), options)


def _pair(program: Program) -> _Pair:
    if program.pair is None:
        program.pair = _Pair(program)
    return program.pair


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def differentiable(program: Program, *leaves: Any) -> list[Any]:
    return program(*leaves)


def _forward(program: Program, *leaves: Any) -> Any:
    pair = _pair(program)
    results = differentiable(pair.forward, *leaves)
    return results[:pair.count], [(leaves if where == "input" else results)[k] for where, k in pair.kept]


def _backward(program: Program, residuals: Any, slopes: Any) -> Any:
    pair = _pair(program)
    real = [s for s, is_real in zip(slopes, pair.real_results) if is_real]
    given = iter(differentiable(pair.backward, *residuals, *real))
    return tuple(next(given) if is_real else None for is_real in pair.real)


differentiable.defvjp(_forward, _backward)
