"""One message for whatever goes wrong between us and the hub: what happened, why, what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pettingllms.errors import HubError, describe

LOGIN = "log in with `hf auth login` or set HF_TOKEN"


@contextmanager
def hub_errors(name: str, repo: str) -> Iterator[None]:
    """Raise what fails inside as HubError; `name` is what the user asked for."""
    from huggingface_hub import constants, errors

    # The bases include the HTTP library's error, which differs between versions.
    failures: Any = (OSError, ValueError, *errors.HfHubHTTPError.__bases__)
    page = f"{constants.ENDPOINT}/datasets/{repo}"
    again = f"run `pettingllms data get {name}` again"
    try:
        yield
    except failures as error:
        raise HubError(f"'{name}' was not downloaded: {_what(error, repo, page, again)}") from None


def _what(error: Exception, repo: str, page: str, again: str) -> str:
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, errors.GatedRepoError):
        return f"{repo} is gated; accept its terms at {page}, {LOGIN}, and {again}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo} has no such revision; add --revision main for the newest, and {again}"
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return f"a file is gone from {repo}; add --revision main for the newest, and {again}"
    if isinstance(error, errors.RepositoryNotFoundError) or status == 404:
        return (
            f"the hub has no dataset {repo}, or it is private; check the name, or {LOGIN}, and "
            f"{again}"
        )
    if status in (401, 403):
        return (
            f"the hub denies access to {repo} ({status}); {LOGIN} for an account that may read it"
        )
    if status:
        return f"the hub answered {status} for {repo}; wait, and {again}: it resumes"
    if "Consistency check" in str(error):
        return f"a file of {repo} is truncated: the hub sent less or more than it lists; {again}"
    first = describe(error).splitlines()[0]
    return f"{page} cannot be reached or read ({first}); check the network, and {again}: it resumes"
