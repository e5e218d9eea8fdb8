"""Several processes give the answer of one: shares, gathering, and whole runs that a launcher has
started.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from safecl.engine.checkpoint import load_state
from safecl.engine.processes import Processes
from safecl.errors import SafeclError
from safecl.methods.catalog import method_class, method_settings

SCRIPT = Path(__file__).parent / "tiny_run.py"
sys.path.insert(0, str(SCRIPT.parent))

from tiny_run import cases  # type: ignore[import-not-found]  # noqa: E402


def pretend(index: int, count: int) -> Processes:
    accelerator: Any = SimpleNamespace(
        process_index=index, num_processes=count, device=torch.device("cpu")
    )
    return Processes(accelerator)


@given(st.integers(1, 9), st.integers(0, 40))
def test_shares_are_even_and_together_they_are_everything(count: int, n: int) -> None:
    shares = [pretend(index, count).share(n) for index in range(count)]
    sizes = [share.stop - share.start for share in shares]
    # nobody is left without a picture
    assert max(sizes) - min(sizes) <= 1 and (min(sizes) >= 1 or n == 0)
    if n >= count:
        assert [i for share in shares for i in range(n)[share]] == list(range(n))
    else:
        assert {i for share in shares for i in range(n)[share]} == set(range(n))


@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 40))
def test_a_share_of_a_smaller_batch_is_never_a_larger_one(count: int, n: int, m: int) -> None:
    for index in range(count):
        small, large = (pretend(index, count).share(size) for size in sorted((n, m)))
        assert small.stop - small.start <= large.stop - large.start


@given(st.integers(2, 5), st.integers(1, 12))
def test_gathered_rows_are_all_of_them_once_and_gradients_are_those_of_one_process(
    count: int, n: int
) -> None:
    """Every process in turn, with a gather that knows what the others would have sent."""
    torch.manual_seed(0)
    inputs = torch.randn(n, 3)
    weight = torch.randn(3, 2)
    head = torch.randn(2, 2)

    def loss(rows: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        z = rows @ h
        return (z.T @ z).square().sum() / n  # no mean over pictures

    w = weight.clone().requires_grad_()
    h = head.clone().requires_grad_()
    loss(inputs @ w, h).backward()
    found = []
    every = [pretend(index, count) for index in range(count)]
    most = max(
        processes.bounds(i, n)[1] - processes.bounds(i, n)[0] for i, processes in enumerate(every)
    )
    padded = torch.zeros(count, most, 2)
    for processes, place in zip(every, padded, strict=True):
        mine = inputs[processes.share(n)] @ weight
        place[: len(mine)] = mine
    for processes in every:
        processes.accelerator.gather = lambda tensor: padded.flatten(0, 1)
        mine_w = weight.clone().requires_grad_()
        mine_h = head.clone().requires_grad_()
        rows = processes.gather(inputs[processes.share(n)] @ mine_w, n)
        assert torch.allclose(rows, inputs @ weight)
        loss(rows, mine_h).backward()
        found.append((mine_w.grad, mine_h.grad))
    for expected, parts in zip((w.grad, h.grad), zip(*found, strict=True), strict=True):
        assert torch.allclose(expected, torch.stack(parts).mean(dim=0), rtol=1e-4, atol=1e-5)


def test_one_process_is_the_plain_thing() -> None:
    alone = pretend(0, 1)
    rows = torch.randn(3, 2)
    assert alone.main and alone.gather(rows, 3) is rows and alone.share(3) == slice(0, 3)
    assert alone.any(True) and not alone.any(False) and alone.once(lambda: 7) == 7


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SafeclError("package.says", sentence="full"), 2),
        (KeyError("bug"), 1),
        (KeyboardInterrupt(), 1),
    ],
)
def test_any_error_of_the_main_process_stops_the_others(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[Any]] = []

    def fail() -> None:
        raise error

    monkeypatch.setattr(
        "accelerate.utils.broadcast_object_list", lambda answer: sent.append(list(answer))
    )
    with pytest.raises(type(error)):
        pretend(0, 2).once(fail)
    (answer,) = sent  # the others were told before it was raised
    monkeypatch.setattr(
        "accelerate.utils.broadcast_object_list",
        lambda mine: mine.__setitem__(slice(None), answer),
    )
    with pytest.raises(SystemExit) as left:
        pretend(1, 2).once(fail)
    assert left.value.code == code


def test_a_parameter_without_a_gradient_keeps_none() -> None:
    """As with one process: its weight decay is not applied either."""
    both = pretend(0, 2)
    both.accelerator.reduce = lambda flat, how: flat
    parameters = {name: torch.nn.Parameter(torch.ones(2)) for name in "ab"}
    parameters["a"].grad = torch.tensor([1.0, 2.0])
    both.average_gradients(parameters)
    assert parameters["b"].grad is None and parameters["a"].grad.tolist() == [1.0, 2.0]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rest", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_processes_are_one(rest: bool, server: Any, tmp_path: Path) -> None:
    """Class- and domain-incremental runs, against the same in one process; slow: of every method,
    by ``torchrun``.
    """
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    for name, command in (("one", [sys.executable]), ("two", launcher)):
        (tmp_path / name).mkdir()
        if not rest:
            assert server.run(f"{name} {tmp_path / name}")[0] == 0
            continue
        ran = subprocess.run(
            [*command, str(SCRIPT), str(tmp_path / name), "--rest"],
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert ran.returncode == 0, ran.stderr
    for case in cases(rest):
        kind = "-".join(case)
        one, two = (
            [
                json.loads(line)
                for line in (tmp_path / name / kind / "metrics.jsonl").read_text().splitlines()
            ]
            for name in ("one", "two")
        )
        for key in (
            "accuracy",
            "pooled",
            "task_mean",
            "forgetting",
            "test_counts",
            "steps",
            "parameters",
        ):
            assert [line[key] for line in one] == [line[key] for line in two], (kind, key)
        assert json.loads((tmp_path / "two" / kind / "facts.json").read_text())["processes"] == 2
        expected, _ = load_state(tmp_path / "one" / f"{kind}_0.safetensors")
        pair = [load_state(tmp_path / "two" / f"{kind}_{index}.safetensors")[0] for index in (0, 1)]
        # to the bit, so choices are too
        assert all(torch.equal(pair[0][name], pair[1][name]) for name in pair[0])
        found = pair[0]
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if name.endswith("remainders"):  # what float32 cannot hold of a mean: rounding itself
                continue
            scale = float(value.double().abs().max()) if value.numel() else 0.0
            # Ridge weights solve a badly conditioned system: what they answer is what must agree.
            tolerance = 1e-2 if name.endswith("ridge.weight") else 2e-3
            assert torch.allclose(
                found[name].double(), value.double(), rtol=0, atol=tolerance * scale
            ), name
        for output in method_class(method_settings()[case[0]]).outputs:
            assert torch.equal(found[output].argmax(dim=1), expected[output].argmax(dim=1)), output
