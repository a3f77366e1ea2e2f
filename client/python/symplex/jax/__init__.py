"""symplex.jax - functions of JAX compiled by symplex. They compose with jax.jit, jax.vmap and jax.grad.

    f = symplex.jax.jit(function)        # any pure function of JAX, instead of jax.jit
    y = f(x)                             # JAX arrays in and out, where they lie
    g = jax.grad(lambda w: f(w, x).sum())
"""
from __future__ import annotations

import functools
from typing import Any, Callable

import jax

from symplex._compile import check_options
from symplex.jax._call import Options, Program, differentiable, hoisted
from symplex.jax._lower import lower as _lower

__all__ = ["jit", "lower"]


def _flat(function: Callable[..., Any], args: Any, keywords: Any,
          is_input: Callable[[Any], bool]) -> tuple[list[Any], Callable[..., Any], list[Any]]:
    """The inputs among the leaves of the arguments, a function of them that gives the leaves of the result, and, once
    that has been called, the structure of the result. Other leaves (static arguments) stay as they are."""
    leaves, tree = jax.tree_util.tree_flatten((args, keywords))
    at = [i for i, leaf in enumerate(leaves) if is_input(leaf)]
    result_tree: list[Any] = []

    def flat(*inputs: Any) -> list[Any]:
        whole = list(leaves)
        for i, value in zip(at, inputs):
            whole[i] = value
        args, keywords = jax.tree_util.tree_unflatten(tree, whole)
        results, made = jax.tree_util.tree_flatten(function(*args, **keywords))
        result_tree[:] = [made]
        return results

    return [leaves[i] for i in at], flat, result_tree


def jit(function: Callable[..., Any] | None = None, *, strict: bool = False, static_argnums: Any = None,
        static_argnames: Any = None, donate_argnums: Any = None, donate_argnames: Any = None, keep_unused: bool = False,
        **options: Any) -> Any:
    """`jax.jit` with symplex as the compiler: the function is traced at its first call with arguments of some shapes
    and types, its jaxpr becomes a program, and XLA calls the compiled module in the memory of arguments and results.
    Inside of jax.jit it is one call among others; under jax.vmap the batched program is compiled, under
    jax.grad one that keeps what the backward program needs, and that one.

    strict           a primitive that symplex does not know is an Unimplemented error with its name. Otherwise XLA
                     computes that part, what stands before, behind and beside it is compiled, and one warning names
                     the primitive. A loop with an unknown primitive in it is XLA's as a whole.
    static_argnums, static_argnames, donate_argnums, donate_argnames, keep_unused   as of jax.jit
    options          those of symplex.compile: target, exact, threads, daemon, ...
    """
    if function is None:
        return functools.partial(jit, strict=strict, static_argnums=static_argnums, static_argnames=static_argnames,
                                 donate_argnums=donate_argnums, donate_argnames=donate_argnames,
                                 keep_unused=keep_unused, **options)
    check_options("symplex.jax.jit", options)
    settings = Options(getattr(function, "__name__", "a function"), strict, options)

    @functools.wraps(function)
    def traced(*args: Any, **keywords: Any) -> Any:
        leaves, flat, tree = _flat(function, args, keywords, lambda leaf: isinstance(leaf, jax.core.Tracer))
        closed = jax.make_jaxpr(flat)(*leaves)
        program = Program(hoisted(closed), settings)
        return jax.tree_util.tree_unflatten(tree[0], differentiable(program, *closed.consts, *leaves))

    return jax.jit(traced, static_argnums=static_argnums, static_argnames=static_argnames,
                   donate_argnums=donate_argnums, donate_argnames=donate_argnames, keep_unused=keep_unused)


def lower(function: Callable[..., Any], *args: Any, **keywords: Any) -> str:
    """The program of a function as text (docs/IR.md), for arguments like these."""
    leaves, flat, _ = _flat(function, args, keywords, lambda leaf: True)
    return _lower(hoisted(jax.make_jaxpr(flat)(*leaves)))
