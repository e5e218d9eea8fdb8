"""The seven benchmarks of the paper and six that its peers use, one short file each."""

from safecl.streams.datasets.cars import CARS
from safecl.streams.datasets.cifar100 import CIFAR100
from safecl.streams.datasets.core50 import CORE50
from safecl.streams.datasets.cub import CUB
from safecl.streams.datasets.dataset import Dataset
from safecl.streams.datasets.domainnet import DOMAINNET
from safecl.streams.datasets.flowers102 import FLOWERS102
from safecl.streams.datasets.food101 import FOOD101
from safecl.streams.datasets.imagenet_a import IMAGENET_A
from safecl.streams.datasets.imagenet_r import IMAGENET_R
from safecl.streams.datasets.office_home import OFFICE_HOME
from safecl.streams.datasets.omnibenchmark import OMNIBENCHMARK
from safecl.streams.datasets.pets import PETS
from safecl.streams.datasets.vtab import VTAB

PAPER = (CIFAR100, IMAGENET_R, IMAGENET_A, CUB, OMNIBENCHMARK, VTAB, DOMAINNET)
OTHERS = (CARS, FLOWERS102, PETS, FOOD101, CORE50, OFFICE_HOME)
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in PAPER + OTHERS}
