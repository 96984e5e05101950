"""Pure statistics on arrays: no input or output, no clock, randomness only from a given seed.

`from assay import stats` loads nothing; a module of this room, as in `stats.rates`, is loaded when
it is used. Nearly all of them need numpy, and most commands need none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.stats import factorial, passk, rates, sequential

__all__ = ["factorial", "passk", "rates", "sequential"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
