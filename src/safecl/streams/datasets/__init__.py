"""The seven benchmarks of the paper and three that its peers use: facts in a table, code where one
needs its own.
"""

from importlib.resources import files
from typing import Any

import yaml

from safecl.entry_points import Catalog
from safecl.streams.datasets import cifar100, plans
from safecl.streams.datasets.dataset import Dataset

CODE: dict[str, dict[str, Any]] = {
    "cifar100": {"plan": cifar100.plan, "reader": cifar100.read},
    "cub": {"plan": plans.cub},
    "domainnet": {"plan": plans.domainnet, "domains": plans.DOMAINNET_DOMAINS},
    "cars": {"plan": plans.official},
    "food101": {"plan": plans.food101},
    "core50": {
        "plan": plans.core50,
        "domains": plans.CORE50_DOMAINS,
        "tested_with": plans.CORE50_DOMAINS[0],
    },
}
FACTS: dict[str, dict[str, Any]] = yaml.safe_load(
    files(__package__).joinpath("facts.yaml").read_text("utf-8")
)


def _dataset(name: str, found: Any) -> Dataset:
    """Somebody's data set."""
    if not isinstance(found, Dataset):
        raise DATASETS.misfit(name, "a safecl.streams.datasets.dataset.Dataset")
    if found.name != name:
        raise DATASETS.misfit(name, f"a Dataset whose name is {name!r}")
    return found


DATASETS = Catalog[Dataset](
    "datasets",
    {name: Dataset(name=name, **facts, **CODE.get(name, {})) for name, facts in FACTS.items()},
    _dataset,
)
