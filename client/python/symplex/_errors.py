"""Errors: a class for each way in which a call of the library can end (client/symplex.h)."""


class Error(Exception):
    """Anything that symplex refuses or fails at. `code` is the number of client/symplex.h, `hint` advice or empty."""

    code: int = 0
    hint: str = ""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n{self.hint}" if self.hint else text


class Cancelled(Error):
    """The call was given up."""


class InputError(Error, ValueError):
    """A program, a module or a tensor is not valid; the text says where."""


class DTypeError(InputError, TypeError):
    """An argument is no array, or one of another element type; the text names the argument and both types."""


class ShapeError(InputError):
    """An argument has another shape; the text names the argument and both shapes."""


class LayoutError(InputError):
    """An argument lies where it cannot be used: with gaps, read-only, on a device, or over another one."""


class MissingFile(FileNotFoundError, InputError):
    """The file of a model or of a module is not there."""


class UsageError(Error, ValueError):
    """The call is wrong: options that do not go together, a dimension given twice, ..."""


class Unimplemented(Error, NotImplementedError):
    """An operator, a target or a processor that is not supported, by its name."""


class TimedOut(Error):
    """May be tried again."""


class NotFound(Error, LookupError):
    """What was asked for is not there."""


class Denied(Error):
    """Not permitted: such as a daemon of another user."""


class LimitExceeded(Error):
    """A limit is exceeded; the text names it."""


class Busy(Error):
    """May be tried again."""


class CorruptModule(Error, ValueError):
    """A module that is truncated or altered."""


class CompileError(Error):
    """The program cannot be compiled, or the process that compiled it died."""


class OutOfMemory(Error, MemoryError):
    """May be tried again with more memory, or less work."""


class NoDaemon(Error):
    """No daemon answers, and one is asked for; or the program that compiles without one is missing."""


class Mismatch(Error):
    """Results differ from those of the interpreter."""


class SystemFailure(Error):
    """A call of the operating system, or a GPU, failed."""


# symplex_code -> class; what is not here is an Error.
BY_CODE = {1: Cancelled, 3: InputError, 4: TimedOut, 5: NotFound, 7: Denied, 8: LimitExceeded, 12: Unimplemented,
           14: Busy, 15: CorruptModule, 16: UsageError, 100: CompileError, 101: CompileError, 102: OutOfMemory,
           103: LimitExceeded, 104: CompileError, 105: NoDaemon, 106: Mismatch, 107: SystemFailure}
