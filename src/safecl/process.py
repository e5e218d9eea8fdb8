"""How this package starts Python again."""

import sys
from typing import Any


def own_python(module: str, *words: str) -> list[str]:
    """The command that runs ``module`` of this package in a process of its own, with these
    arguments.

    Without ``-P`` the current folder is where Python looks for code first, and a yaml.py there
    would be run.
    """
    return [sys.executable, "-P", "-m", module, *words]


def own_job(ray: Any) -> Any:
    """The job of Ray whose workers do not look for code in the current folder either."""
    return ray.job_config.JobConfig(_client_job=True)  # whose folder would be that of a client
