"""The seven benchmarks of the paper, one short file each."""

from safecl.streams.datasets.cifar100 import CIFAR100
from safecl.streams.datasets.cub import CUB
from safecl.streams.datasets.dataset import Dataset
from safecl.streams.datasets.domainnet import DOMAINNET
from safecl.streams.datasets.imagenet_a import IMAGENET_A
from safecl.streams.datasets.imagenet_r import IMAGENET_R
from safecl.streams.datasets.omnibenchmark import OMNIBENCHMARK
from safecl.streams.datasets.vtab import VTAB

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset for dataset in (CIFAR100, IMAGENET_R, IMAGENET_A, CUB, OMNIBENCHMARK, VTAB, DOMAINNET)
}
