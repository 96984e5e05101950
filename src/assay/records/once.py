"""What all threads of this process share, made by the first that asks."""

import threading
from collections.abc import Callable
from functools import cache, wraps


def made_once[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that makes a thing once for its arguments, also if threads ask at once.

    functools.cache alone calls the function once for each of them.
    """
    lock, kept = threading.RLock(), cache(function)

    @wraps(function)
    def get(*args: P.args, **kwargs: P.kwargs) -> R:
        with lock:
            return kept(*args, **kwargs)  # type: ignore[arg-type]

    get.cache_clear = kept.cache_clear  # type: ignore[attr-defined]
    return get
