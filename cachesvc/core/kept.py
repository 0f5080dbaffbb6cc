"""A property that is worked out once, without a lock.

Before Python 3.12 `functools.cached_property` holds a lock meanwhile, one for all instances: a
process that is forked while another thread has it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class kept(Generic[T]):  # noqa: N801 - used as a decorator, like property
    """Keeps what the function gives in the instance; two threads at once may each work it out."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> kept[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> kept[T] | T:
        if instance is None:
            return self
        value = self._function(instance)
        # Found before this descriptor from now on, as this one takes no assignment.
        instance.__dict__[self._function.__name__] = value
        return value
