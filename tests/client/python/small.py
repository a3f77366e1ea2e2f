"""What tests of the package share: what must be raised, small programs, small whole numbers."""
import numpy as np


def fails(classes, part, function, *args, **keywords):
    """The exception that the call raises: one of these classes, with `part` in its text. Tests of errors that name the
    line of the caller call by themselves."""
    try:
        function(*args, **keywords)
    except classes as error:
        assert part in str(error), f"{part!r} is not in {type(error).__name__}: {error}"
        return error
    raise AssertionError(f"nothing was raised, {classes} was expected: {part}")


def program(*lines):
    return 'sx 1\ngraph "test" {\n' + "".join(f"    {line}\n" for line in lines) + "}\n"


def parameter(name, kind, weight=0):
    return f'%{name} = parameter {{name = "{name}", weight = {weight}}} : {kind}'


def numbers(*shape, dtype=np.float32):
    return (np.arange(int(np.prod(shape))) % 7 - 3).reshape(shape).astype(dtype)
