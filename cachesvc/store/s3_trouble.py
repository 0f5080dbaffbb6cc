"""What a failed request to S3 means to the user of a store, and what to do about it."""

from __future__ import annotations

from botocore import exceptions as botocore
from botocore.parsers import ResponseParserError

from cachesvc.core.errors import AccessDenied, StoreError, TccacheError, UsageError
from cachesvc.store.s3_conflict import ConflictError
from cachesvc.store.s3_options import S3Options

_RENEW = "renew the credentials (aws sso login, or a new session token)"
_CHECK = "check the access key, its secret, and that they belong to this endpoint"
_GRANT = "give the credentials the permission for it"
_OR_MISSING = ", or there is no such object: without s3:ListBucket that is answered in this way too"
_UNSAID = (
    f"{_GRANT}, {_RENEW} if they have expired, or set this machine's clock if it is wrong: no"
    " reason is given in an answer to HEAD"
)
_DENIED = {
    "AccessDenied": _GRANT,
    "403": _GRANT,
    "Forbidden": _GRANT,
    "AllAccessDisabled": "the bucket's owner has to enable it again",
    "ExpiredToken": _RENEW,
    "ExpiredTokenException": _RENEW,
    "TokenRefreshRequired": _RENEW,
    "RequestExpired": "set this machine's clock, or renew the credentials",
    "RequestTimeTooSkewed": "set this machine's clock",
    "InvalidToken": _CHECK,
    "InvalidAccessKeyId": _CHECK,
    "InvalidClientTokenId": _CHECK,
    "SignatureDoesNotMatch": _CHECK,
}
_SLOWER = "the store is throttling; try again later, or with fewer processes"
_FAILING = {
    "NoSuchBucket": "create the bucket, or mend the URL",
    "PermanentRedirect": "name the bucket's region with ?region=",
    "AuthorizationHeaderMalformed": "name the bucket's region with ?region=",
    "IllegalLocationConstraintException": "name the bucket's region with ?region=",
    "PreconditionFailed": "the object changed while it was read; fetch it again",
    "InvalidObjectState": "the object is archived; restore it, or push again elsewhere",
    "SlowDown": _SLOWER,
    "503": _SLOWER,  # as an answer to HEAD says it, which has no body
    "BadDigest": "the bytes were damaged on the way; try again",
}
_CONFLICTS = frozenset({"ConditionalRequestConflict", "409", "NoSuchUpload"})
_CREDENTIALS = (
    botocore.NoCredentialsError,
    botocore.PartialCredentialsError,
    botocore.CredentialRetrievalError,
    botocore.TokenRetrievalError,
    botocore.NoAuthTokenError,
    botocore.SSOError,
    botocore.RefreshWithMFAUnsupportedError,
)
_SETTINGS = (
    botocore.ProfileNotFound,
    botocore.ConfigParseError,
    botocore.ConfigNotFound,
    botocore.ValidationError,
    botocore.ParamValidationError,
    botocore.NoRegionError,
    botocore.InvalidRetryConfigurationError,
    botocore.InvalidS3AddressingStyleError,
    botocore.InvalidConfigError,
    botocore.EndpointProviderError,
)


def answered(error: botocore.ClientError, what: str, options: S3Options) -> StoreError:
    """The meaning of an answer that is an error."""
    said = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code = str(said.get("Code", status))
    text = (
        f"{error.operation_name} of {what} in {options.url} failed: {code}"
        f" ({said.get('Message', 'no message')})"
    )
    if error.operation_name == "AssumeRole":
        return AccessDenied(f"{text}; let the credentials assume {options.role}")
    if code in _CONFLICTS:
        return ConflictError(f"{text}; others write or delete it at the same moment; try again")
    if code in _FAILING:
        return StoreError(f"{text}; {_FAILING[code]}")
    if error.operation_name == "HeadObject" and code in {"400", "401", "403"}:
        return AccessDenied(f"{text}; {_UNSAID}{_OR_MISSING if code == '403' else ''}")
    if code in _DENIED or status in {401, 403}:
        advice = _DENIED.get(code, _GRANT) + _clock(error)
        reads = error.operation_name in {"GetObject", "HeadObject"}
        return AccessDenied(f"{text}; {advice}{_OR_MISSING if reads and advice == _GRANT else ''}")
    return StoreError(f"{text}; try again, and look at the store's health if it stays")


def _clock(error: botocore.ClientError) -> str:
    """What time the service has, if that is the matter."""
    code = error.response.get("Error", {}).get("Code")
    if code not in {"RequestTimeTooSkewed", "RequestExpired"}:
        return ""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return f": the service has {headers['date']}" if headers.get("date") else ""


def unanswered(error: Exception, what: str, options: S3Options) -> TccacheError:
    """The meaning of a request that got no answer, or half of one, or was never sent."""
    text = f"{what} in {options.url}: {error}"
    if isinstance(error, _CREDENTIALS):
        return AccessDenied(
            f"{text}; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where"
            " a role is given"
        )
    if isinstance(error, _SETTINGS):
        return UsageError(f"{text}; mend the URL or the AWS settings")
    if isinstance(error, (botocore.ConnectionError, botocore.ConnectTimeoutError)):
        return StoreError(f"{text}; check the network, the region and the endpoint")
    if isinstance(error, botocore.FlexibleChecksumError):
        return StoreError(f"{text}; the bytes were damaged on the way; try again")
    if isinstance(error, (ResponseParserError, ValueError)):  # ValueError: a date or a number
        return StoreError(f"{text}; the endpoint does not answer as AWS does; check it")
    return StoreError(f"{text}; the connection broke; try again")
