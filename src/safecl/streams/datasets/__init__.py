"""The seven benchmarks of the paper and six that its peers use: facts in a table, code where one needs its own."""

from importlib.resources import files
from typing import Any

import yaml

from safecl.streams.datasets import cifar100, core50, cub, domainnet, flowers102, food101, office_home, pets
from safecl.streams.datasets.dataset import Dataset, plan_official, plan_processed_or_seeded

CODE: dict[str, dict[str, Any]] = {
    "cifar100": {"plan": cifar100.plan, "reader": cifar100.read},
    "imagenet-r": {"plan": plan_processed_or_seeded},
    "imagenet-a": {"plan": plan_processed_or_seeded},
    "cub": {"plan": cub.plan},
    "domainnet": {"plan": domainnet.plan, "reader": domainnet.read, "domains": domainnet.DOMAINS},
    "cars": {"plan": plan_official},
    "flowers102": {"plan": flowers102.plan},
    "pets": {"plan": pets.plan},
    "food101": {"plan": food101.plan},
    "core50": {"plan": core50.plan, "domains": core50.DOMAINS, "tested_with": core50.DOMAINS[0]},
    "office-home": {"plan": office_home.plan, "domains": office_home.DOMAINS},
}
FACTS: dict[str, dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("facts.yaml").read_text("utf-8"))
DATASETS = {name: Dataset(name=name, **facts, **CODE.get(name, {})) for name, facts in FACTS.items()}
