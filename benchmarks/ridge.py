"""How exact the ridge head is at full size: its logits against a float64 closed form, on this machine.

python benchmarks/ridge.py --size 10000 --pictures 500 12000
"""

import argparse
import time

import torch

from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings

WIDTH, CLASSES, TEST = 384, 50, 200


def draw(n: int, seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Clustered features of the length a ViT gives: (n, d), and their classes."""
    centres = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, CLASSES, (n,), generator=generator)
    features = centres[targets] + 1.5 * torch.randn(n, WIDTH, generator=generator)
    return (30 * torch.nn.functional.normalize(features, dim=1)).to(device), targets.to(device)


def oracle(head: RidgeHead, x: torch.Tensor, y: torch.Tensor, test: torch.Tensor) -> torch.Tensor:
    """The same logits in float64, from the smaller of the two closed forms."""
    h, t = (torch.relu(f.double() @ head.projection.double()) for f in (x, test))
    one_hot = torch.nn.functional.one_hot(y, CLASSES).double()
    n, m = h.shape
    beta = max(head.beta, torch.finfo(torch.float32).eps * float(h.square().sum()))
    if n < m:
        return t @ (h.T @ torch.linalg.solve(h @ h.T + beta * torch.eye(n, device=h.device).double(), one_hot))
    return t @ torch.linalg.solve(h.T @ h + beta * torch.eye(m, device=h.device).double(), h.T @ one_hot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000, help="random features, M")
    parser.add_argument("--pictures", type=int, nargs="+", default=[500, 12_000], help="training pictures, N")
    parser.add_argument("--betas", type=float, nargs="+", default=[1e-8, 1e-4, 1e-2, 1.0], help="relative β")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    print("| M | N | β (relative) | largest error of a logit | same prediction | add, s | solve, s |")
    print("|---|---|---|---|---|---|---|")
    for n in options.pictures:
        (x, y), (test, _) = draw(n, 1, device), draw(TEST, 2, device)
        whole = RidgeHead(WIDTH, RidgeSettings(size=options.size), device=device)
        started = time.monotonic()
        whole.add(x, y)
        added = time.monotonic() - started
        for beta in options.betas:
            head = RidgeHead(WIDTH, RidgeSettings(size=options.size, betas=(beta,)), device=device)
            head.statistics = whole.statistics
            started = time.monotonic()
            head.solve()
            solved = time.monotonic() - started
            found, expected = head.logits(test).double(), oracle(head, x, y, test)
            error = float((found - expected).abs().max())
            same = float((found.argmax(dim=1) == expected.argmax(dim=1)).double().mean())
            print(
                f"| {options.size} | {n} | {beta:g} | {error:.1e} | {same:.1%} | {added:.1f} | {solved:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
