"""The seven benchmarks of the paper and fourteen that its peers use: facts in a table, code where
one needs its own.
"""

from importlib.resources import files
from typing import Any

import yaml

from safecl.entry_points import Catalog
from safecl.streams.datasets import libraries, plans
from safecl.streams.datasets.dataset import Dataset

ARRAYS = (libraries.CIFAR100, libraries.CIFAR10, libraries.SVHN, libraries.STL10)
CODE: dict[str, dict[str, Any]] = {
    **{one.name: {"plan": one.plan, "reader": one.read} for one in ARRAYS},
    "imagenet-r": {"plan": plans.processed_or_drawn},
    "imagenet-a": {"plan": plans.processed_or_drawn},
    "cub": {"plan": plans.cub},
    "domainnet": {"plan": plans.domainnet, "domains": plans.DOMAINNET_DOMAINS},
    "cars": {"plan": libraries.cars},
    "food101": {"plan": libraries.FOOD},
    "core50": {
        "plan": plans.core50,
        "domains": plans.CORE50_DOMAINS,
        "tested_with": plans.CORE50_DOMAINS[0],
    },
    "office-home": {"plan": plans.office_home, "domains": plans.OFFICE_HOME_DOMAINS},
    "flowers102": {"plan": libraries.FLOWERS},
    "pets": {"plan": libraries.PETS},
    "aircraft": {"plan": libraries.AIRCRAFT},
    "dtd": {"plan": libraries.TEXTURES},
    "eurosat": {"plan": libraries.EUROSAT},
    "gtsrb": {"plan": libraries.SIGNS},
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
