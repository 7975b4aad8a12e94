"""Who publishes this: the one place that knows an address."""

import os


def repository() -> str:
    """The repository that builds, from the environment; "" if unknown.

    BOOK_REPOSITORY is a publisher's own; GitHub sets the other two.
    """
    name = os.environ.get("GITHUB_REPOSITORY", "")
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    return os.environ.get("BOOK_REPOSITORY") or (
        f"{server}/{name}" if name else ""
    )
