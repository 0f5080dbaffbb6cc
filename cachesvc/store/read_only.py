"""A store that nothing can be written to."""

from __future__ import annotations

from cachesvc.core.errors import AccessDenied
from cachesvc.store.streams import Source
from cachesvc.store.wrapper import Wrapper


class ReadOnly(Wrapper):
    """Raises AccessDenied for every write, before `inner` hears of it."""

    def _put(self, key: str, source: Source) -> None:
        raise self._refusal(f"{key} cannot be written")

    def _delete(self, key: str) -> None:
        raise self._refusal(f"{key} cannot be deleted")

    def _refusal(self, what: str) -> AccessDenied:
        return AccessDenied(f"{what}: {self.url} was opened for reading only; open it for writing")
