"""Tracing of functions over NumPy arrays. Nothing here is public; `symplex.jit` and its like are in `../_jit.py`."""
