"""Writing an S3 object where there is none of its name, and leaving the one that is there.

Names are digests of what they name and are written once, so an object that is there already is
as good as one written now: an answer was lost and the request sent again, or another process was
quicker. Should its bytes be others, readers find that out by the digest, and what was there first
is not lost.
"""

from __future__ import annotations

from collections.abc import Callable

from botocore.exceptions import ClientError

_THERE = frozenset({"PreconditionFailed", "412", "304"})  # MinIO once answered 304 to a PUT
_UNKNOWN = frozenset({"NotImplemented", "501", "InvalidArgument", "InvalidRequest", "400"})


class Creation:
    """Sends requests that write, on the condition that there is no object of the name yet.

    Some services do not know the condition. The first request that is refused for it is sent
    again without it, and from then on none carries it: such a service replaces objects.
    """

    def __init__(self) -> None:
        self._conditional = True

    def send(self, request: Callable[..., object]) -> bool:
        """Sends one request; whether it wrote, or else there is an object already.

        `request` takes arguments of a botocore call to add to its own. Raises ClientError.
        """
        if not self._conditional:
            request()
            return True
        try:
            request(IfNoneMatch="*")
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code in _THERE:
                return False
            if code not in _UNKNOWN:
                raise
            request()
            self._conditional = False
        return True
