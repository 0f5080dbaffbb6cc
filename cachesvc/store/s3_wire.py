"""Requests to S3. This module imports botocore, so it is imported at the first request only.

botocore's own client is used, not boto3's: for the calls needed here it is the same code, and a
process that only pulls starts a tenth of a second sooner.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from cachesvc.core.errors import StoreError
from cachesvc.store.s3_create import Creation
from cachesvc.store.s3_options import S3Options
from cachesvc.store.s3_trouble import answered, unanswered

ATTEMPTS = 4
CONNECT_S = 5
READ_S = 30
CONNECTIONS = 32


class Wire:
    """One client for one bucket; safe to use from several threads."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self._creation = Creation()
        with self._trouble("opening it"):
            self._client = _client(options)

    def find(self, operation: str, key: str, **arguments: Any) -> dict[str, Any] | None:
        """One request about an object that may not exist: the response, or None if it does not."""
        with self._trouble(key):
            try:
                return self._call(operation, arguments)
            except ClientError as error:
                if _says_missing(error):
                    return None
                raise

    def call(self, operation: str, what: str, **arguments: Any) -> dict[str, Any]:
        """One request; `what` names its object in errors. Raises StoreError."""
        with self._trouble(what):
            return self._call(operation, arguments)

    def create(self, operation: str, key: str, **arguments: Any) -> bool:
        """One request that writes an object: whether it did, or else there is one already.

        Raises StoreError, and ConflictError if the write has to be begun again.
        """
        with self._trouble(key):
            return self._creation.send(
                lambda **condition: self._call(operation, {**arguments, **condition})
            )

    def told(self, response: dict[str, Any], name: str) -> Any:
        """A field that every S3 sends with such a response. Raises StoreError without it."""
        if name in response:
            return response[name]
        raise StoreError(
            f"{self._options.url}: the endpoint does not answer as S3 does, with no {name}; check"
            " it, and proxies on the way"
        )

    def read(self, body: Any, most: int, what: str) -> bytes:
        """The next bytes of a response's body; none at its end. Raises StoreError."""
        with self._trouble(what):
            chunk: bytes = body.read(most)
        return chunk

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        response: dict[str, Any] = getattr(self._client, operation)(
            Bucket=self._options.bucket, **arguments
        )
        return response

    @contextmanager
    def _trouble(self, what: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            raise answered(error, what, self._options) from error
        except (BotoCoreError, ResponseParserError, HTTPError, OSError, ValueError) as error:
            raise unanswered(error, what, self._options) from error


def _says_missing(error: ClientError) -> bool:
    """Whether the answer is that there is no such object. HEAD has no body, so only a status."""
    code: object = error.response.get("Error", {}).get("Code")
    return code == "NoSuchKey" or (error.operation_name == "HeadObject" and code == "404")


def _client(options: S3Options) -> Any:
    session = botocore.session.Session(profile=options.profile)
    if options.role:
        session = _assuming(session, options.role)
    return session.create_client(
        "s3",
        region_name=options.region,
        endpoint_url=options.endpoint,
        config=_config(options, session),
    )


def _config(options: S3Options, session: Any) -> Config:
    """What the user's own AWS settings do not say."""
    profile = session.get_scoped_config()
    retries: dict[str, Any] = {}
    if "AWS_RETRY_MODE" not in os.environ and "retry_mode" not in profile:
        retries["mode"] = "standard"
    if "AWS_MAX_ATTEMPTS" not in os.environ and "max_attempts" not in profile:
        retries["total_max_attempts"] = ATTEMPTS
    addressing = options.addressing or ("path" if _elsewhere(options) else None)
    more: dict[str, Any] = {}
    if "request_checksum_calculation" in Config.OPTION_DEFAULTS:  # since botocore 1.36
        # Writes carry a checksum of ours in a header. botocore's comes as a trailer, which many
        # services other than AWS refuse.
        more["request_checksum_calculation"] = "when_required"
    return Config(
        retries=retries,
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
        max_pool_connections=CONNECTIONS,
        tcp_keepalive=True,
        user_agent_extra="tccache",
        s3={"addressing_style": addressing} if addressing else None,
        **more,
    )


def _elsewhere(options: S3Options) -> bool:
    """Whether requests go to a service other than AWS, which seldom has a name for each bucket."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    return bool(options.endpoint or any(os.environ.get(name) for name in names))


def _assuming(session: Any, role: str) -> Any:
    """A session whose credentials are the role's, asked for at the first call and then renewed."""
    source = session.get_credentials()
    if source is None:
        raise NoCredentialsError
    fetcher = AssumeRoleCredentialFetcher(
        session.create_client, source, role, extra_args={"RoleSessionName": "tccache"}
    )
    assumed = botocore.session.Session(profile=session.profile)
    assumed.register_component("credential_provider", CredentialResolver([_Role(fetcher)]))
    return assumed


class _Role:
    """A credential provider as botocore wants it."""

    METHOD = "assume-role"
    CANONICAL_NAME = None

    def __init__(self, fetcher: AssumeRoleCredentialFetcher) -> None:
        self._fetcher = fetcher

    def load(self) -> DeferredRefreshableCredentials:
        return DeferredRefreshableCredentials(self._fetcher.fetch_credentials, self.METHOD)
