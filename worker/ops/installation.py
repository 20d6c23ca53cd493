"""Whether the packages that are imported are ours: two old distributions share our names."""

from __future__ import annotations

import importlib

PACKAGES = ("worker", "limiter", "queue_client", "lua")
DISTRIBUTION = "rewardpool"


class InstallationError(RuntimeError):
    """Another distribution has overwritten one of our packages; reinstall ours."""


def check_installation() -> None:
    """Raise InstallationError, naming the file, if a package is not rewardpool's."""
    for name in PACKAGES:
        try:
            package = importlib.import_module(name)
        except ImportError as error:
            raise InstallationError(f"package {name!r} cannot be imported: {error}") from error
        if getattr(package, "DISTRIBUTION", None) != DISTRIBUTION:
            where = getattr(package, "__file__", None) or list(package.__path__)
            raise InstallationError(
                f"package {name!r} at {where} is not rewardpool's: another distribution with that "
                f"name has overwritten it. Uninstall that one, then "
                f"`pip install --force-reinstall --no-deps rewardpool`"
            )
