"""The ridge head against float64 closed forms and scikit-learn; its statistics add up in any
order.
"""

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from safecl.heads.choose_beta import (
    MAX_EVIDENCE_PICTURES,
    PRICE,
    held_out_errors,
    leave_one_out_errors,
)
from safecl.heads.gram import CHUNK
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.randomness import generator
from tests.conftest import raises

WIDTH = 12


def draw(
    n: int, classes: int = 4, seed: int = 0, width: int = WIDTH
) -> tuple[torch.Tensor, torch.Tensor]:
    """Clustered features of the length a ViT gives, and their classes; every class comes up."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(classes, width))
    targets = random.permutation(np.arange(n) % classes)
    features = centres[targets] + random.normal(size=(n, width))
    features *= 20 / np.linalg.norm(features, axis=1, keepdims=True)
    return torch.tensor(features, dtype=torch.float32), torch.tensor(targets)


def head_with(
    size: int, *betas: float, seed: int = 0, width: int = WIDTH, **settings: Any
) -> RidgeHead:
    grid: dict[str, Any] = {"betas": betas} if betas else {}
    return RidgeHead(width, RidgeSettings(size=size, **grid, **settings), seed)


def project(head: RidgeHead, features: torch.Tensor) -> np.ndarray:
    return np.maximum(features.double().numpy() @ head.project.projection.double().numpy(), 0)


def oracle(
    head: RidgeHead, features: torch.Tensor, targets: torch.Tensor, test: torch.Tensor
) -> np.ndarray:
    """Logits in float64 from the smaller of the two closed forms, which are equal."""
    h = project(head, features)
    t = project(head, test)
    # the rounding noise of G
    beta = max(head.beta, torch.finfo(head.project.projection.dtype).eps * (h**2).sum())
    one_hot = np.eye(int(targets.max()) + 1)[targets]
    n, m = h.shape
    if n < m:
        return t @ h.T @ np.linalg.solve(h @ h.T + beta * np.eye(n), one_hot)
    return t @ np.linalg.solve(h.T @ h + beta * np.eye(m), h.T @ one_hot)


# -- logits ----------------------------------------------------------------------------------------

CASES = {
    "fewer pictures than features": (40, 100, 4),
    "more": (300, 60, 4),
    "one picture a class": (10, 50, 10),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("beta", [0.01, 1.0])
def test_logits_are_those_of_the_float64_closed_form_and_of_scikit_learn(
    case: str, beta: float
) -> None:
    n, size, classes = CASES[case]
    (x, y), (test, _) = draw(n, classes), draw(30, classes, seed=5)
    head = head_with(size, beta)
    head.add(x, y)
    head.solve()
    found = head.logits(test)
    assert found.shape == (30, classes)
    assert np.allclose(found, oracle(head, x, y, test), atol=1e-4)
    reference = Ridge(alpha=head.beta, fit_intercept=False).fit(
        project(head, x), np.eye(classes)[y]
    )
    assert np.allclose(found, reference.predict(project(head, test)), atol=1e-4)


@pytest.mark.parametrize("n, beta", [(20, 0.1), (200, 1.0)])
def test_without_a_projection_it_is_ridge_regression_on_the_features(n: int, beta: float) -> None:
    (x, y), (test, _) = draw(n), draw(30, seed=5)
    head = RidgeHead(WIDTH, RidgeSettings(project=False, betas=(beta,), scale="absolute"))
    head.add(x, y)
    head.solve()
    ridge = Ridge(alpha=beta, fit_intercept=False)
    wanted = np.eye(4)[y]
    assert np.allclose(
        head.logits(test), ridge.fit(x.numpy(), wanted).predict(test.numpy()), atol=1e-4
    )
    left_out = [
        np.square(
            ridge.fit(np.delete(x, i, 0), np.delete(wanted, i, 0)).predict(x[i : i + 1]) - wanted[i]
        ).sum()
        for i in range(n)
    ]
    assert np.allclose(head.leave_one_out(x, y).sort().values, sorted(left_out), rtol=1e-3)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("beta", [1e-6, 0.01, 1.0])
def test_a_float64_head_is_exact_to_ten_digits(case: str, beta: float) -> None:
    n, size, classes = CASES[case]
    (x, y), (test, _) = draw(n, classes), draw(30, classes, seed=5)
    head = head_with(size, beta).double()
    head.add(x.double(), y)
    head.solve()
    found = head.logits(test.double())
    assert found.dtype == torch.float64
    # the oracle itself loses digits to the condition number
    tolerance = 1e-10 if beta > 1e-6 else 1e-8
    assert np.allclose(found, oracle(head, x, y, test), atol=tolerance)


@pytest.mark.parametrize("n", [100, 700])
def test_logits_hold_at_thousands_of_random_features(n: int) -> None:
    (x, y), (test, _) = draw(n, width=48), draw(50, seed=5, width=48)
    head = head_with(2000, width=48)
    head.add(x, y)
    head.solve()
    expected = oracle(head, x, y, test)
    assert np.allclose(head.logits(test), expected, atol=1e-3)
    assert (head.logits(test).argmax(dim=1).numpy() == expected.argmax(axis=1)).all()


@pytest.mark.parametrize("beta", [1e-8, 1e-4, 1.0])
@pytest.mark.parametrize("n", [60, 380, 900])
def test_a_beta_below_the_rounding_of_the_gram_matrix_still_predicts_as_float64_does(
    n: int, beta: float
) -> None:
    (x, y), (test, _) = draw(n, width=32), draw(200, seed=5, width=32)
    # absolute: far under the mean squared norm of 8e4
    head = head_with(400, beta, width=32, scale="absolute")
    head.add(x, y)
    head.solve()
    expected = oracle(head, x, y, test)
    assert np.allclose(head.logits(test), expected, atol=0.01)
    assert (head.logits(test).argmax(dim=1).numpy() == expected.argmax(axis=1)).mean() > 0.98


def test_zero_features_give_zero_logits() -> None:
    head = head_with(20)
    head.add(torch.zeros(6, WIDTH), torch.tensor([0, 1, 2, 0, 1, 2]))
    head.solve()
    assert torch.equal(head.logits(torch.zeros(2, WIDTH)), torch.zeros(2, 3))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("use", ["add", "leave_one_out"])
def test_features_that_are_not_finite_are_refused_in_a_sentence(use: str, value: float) -> None:
    with raises("features.not-finite"):
        getattr(head_with(20), use)(torch.full((6, WIDTH), value), torch.zeros(6, dtype=torch.long))


# -- statistics ------------------------------------------------------------------------------------


def test_the_statistics_are_the_gram_matrix_and_the_class_sums() -> None:
    x, y = draw(30)
    head = head_with(20)
    head.add(x, y)
    h = project(head, x)
    assert np.allclose(head.statistics.gram, h.T @ h, rtol=1e-5)
    assert np.allclose(head.statistics.sums, h.T @ np.eye(4)[y], rtol=1e-5)


@pytest.mark.parametrize("size", [30, 1300], ids=["primal", "dual"])
def test_pictures_are_projected_a_chunk_at_a_time(size: int) -> None:
    x, y = draw(CHUNK + 200)
    head = head_with(size, 1e-2, 1e-1)
    sizes: list[int] = []
    head.project.register_forward_hook(lambda _, given, rows: sizes.append(len(rows)))
    head.add(x, y)
    assert max(sizes) == CHUNK and sum(sizes) >= len(x)
    head.solve()
    assert np.allclose(head.logits(x[:50]), oracle(head, x, y, x[:50]), atol=1e-3)


@settings(max_examples=40)
@given(
    st.lists(st.integers(2, 30), min_size=2, max_size=5),
    st.randoms(),
    st.sampled_from(["relative", "absolute"]),
)
@example([30, MAX_EVIDENCE_PICTURES + 100, 20], Random(0), "relative")
def test_sessions_may_come_in_any_order(sizes: list[int], random: Random, scale: Any) -> None:
    x, y = draw(sum(sizes))
    # so that sessions differ in the scale of their features
    x = x * torch.linspace(0.5, 2, len(x))[:, None]
    sessions = list(zip(x.split(sizes), y.split(sizes), strict=True))
    betas = (1e-2, 1e-1, 1.0) if scale == "relative" else (10.0, 100.0, 1000.0)
    there, back = (head_with(20, *betas, scale=scale) for _ in range(2))
    for features, targets in sessions:
        there.add(features, targets)
    random.shuffle(sessions)
    for features, targets in sessions:
        back.add(features, targets)
    there.solve()
    back.solve()
    assert there.beta == pytest.approx(back.beta, rel=1e-5)
    assert torch.allclose(there.logits(x), back.logits(x), atol=1e-4)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.randoms())
def test_batches_and_shards_add_up_to_the_whole(sizes: list[int], random: Any) -> None:
    x, y = draw(sum(sizes))
    whole, parts = (head_with(40, 0.05) for _ in range(2))
    whole.add(x, y)
    batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
    random.shuffle(batches)
    shards = [head_with(40, 0.05), head_with(40, 0.05)]
    for i, (features, targets) in enumerate(batches):
        shards[i % 2].statistics.add(shards[i % 2].project(features), targets)
    shape = whole.statistics.sums.shape[1]
    for shard in shards:
        statistics = shard.statistics
        if statistics.count:
            parts.statistics.gram = statistics.gram + (
                parts.statistics.gram if len(parts.statistics.gram) else 0
            )
            wide = torch.nn.functional.pad(statistics.sums, (0, shape - statistics.sums.shape[1]))
            parts.statistics.sums = wide + (
                parts.statistics.sums if parts.statistics.sums.shape[1] else 0
            )
            parts.statistics.count += statistics.count
    whole.solve()
    parts.solve()
    assert torch.allclose(whole.logits(x), parts.logits(x), atol=1e-4)


def test_a_new_class_changes_nothing_but_adds_a_column_of_sums() -> None:
    x, y = draw(20)
    head = head_with(30)
    head.add(x, y)
    before = head.statistics.sums.clone()
    head.add(x[:3], torch.tensor([4, 4, 6]))
    assert torch.equal(head.statistics.sums[:, :4], before)
    assert head.statistics.sums.shape == (30, 7) and not head.statistics.sums[:, 5].any()


# -- the choice of β -------------------------------------------------------------------------------


def test_leave_one_out_is_the_best_of_the_grid_and_needs_no_statistics() -> None:
    x, y = draw(25)
    head = head_with(40, 1e-2, 1e-1, 1.0)
    h = project(head, x)
    unit = (h**2).sum() / len(h)
    kernel = torch.tensor(h @ h.T)
    one_hot = torch.tensor(np.eye(4)[y])
    errors = leave_one_out_errors(kernel, one_hot, [1e-2 * unit, 1e-1 * unit, unit])
    best = errors[int(errors.mean(dim=1).argmin())]
    assert np.allclose(sorted(head.leave_one_out(x, y).tolist()), sorted(best.tolist()), rtol=1e-3)
    assert not head.statistics.count and not head.errors.any()


@pytest.mark.parametrize("scale", ["relative", "absolute"])
@pytest.mark.parametrize("seed", range(4))
def test_beta_is_the_best_of_the_grid_on_held_out_training_pictures(scale: Any, seed: int) -> None:
    betas = (1e-3, 1e-2, 1e-1, 1.0, 10.0) if scale == "relative" else (1.0, 1e2, 1e3, 1e4, 1e5)
    head = head_with(60, *betas, seed=seed, scale=scale)
    total = np.zeros(len(betas))
    sessions = [draw(33, seed=10 * seed), draw(52, seed=10 * seed + 1)]  # ⌊0.8 N⌋ are fitted
    for x, y in sessions:
        head.add(x, y)
        order = torch.randperm(len(x), generator=generator(seed, "beta")).numpy()
        fit = order[: int(0.8 * len(x))]
        held = order[int(0.8 * len(x)) :]
        h = project(head, x)
        one_hot = np.eye(4)[y]
        unit = (h**2).sum() / len(x) if scale == "relative" else 1.0
        for i, beta in enumerate(betas):
            w = np.linalg.solve(
                h[fit].T @ h[fit] + beta * unit * np.eye(60), h[fit].T @ one_hot[fit]
            )
            total[i] += ((h[held] @ w - one_hot[held]) ** 2).sum()
            total[i] -= PRICE * len(held) * np.log10(beta)
    assert np.allclose(head.errors, total, rtol=1e-3)
    everything = np.concatenate([project(head, x) for x, _ in sessions])
    unit = (everything**2).sum() / len(everything) if scale == "relative" else 1.0
    assert head.beta == pytest.approx(betas[int(total.argmin())] * unit, rel=1e-5)


@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_sessions_of_one_or_two_classes_choose_about_the_beta_that_all_classes_need(
    each: int, seed: int
) -> None:
    """Each alone is told apart by any β; with the smallest one, all of them together are not."""
    (x, y), (asked, wanted) = (draw(n, classes=20, seed=seed, width=40) for n in (400, 1000))
    whole, parts = (head_with(500, width=40, seed=seed) for _ in range(2))
    whole.add(x, y)
    for c in range(0, 20, each):
        own = (y >= c) & (y < c + each)
        parts.add(x[own], y[own])
    right = []
    for head in (whole, parts):
        head.solve()
        right.append(float((head.logits(asked).argmax(dim=1) == wanted).float().mean()))
    assert right[1] >= right[0] - 0.02
    parts.errors.zero_()[0] = -1.0  # the smallest β
    parts.solve()
    assert float((parts.logits(asked).argmax(dim=1) == wanted).float().mean()) < right[0] - 0.05


def test_no_more_than_the_evidence_pictures_take_part_in_the_choice() -> None:
    most = MAX_EVIDENCE_PICTURES
    x, y = draw(most + 60)
    few = head_with(30, 1e-2, 1.0)
    few.add(x, y)
    order = torch.randperm(len(x), generator=generator(0, "beta"))[:most]
    price = PRICE * (most - 4 * most // 5) * torch.tensor(few.settings.betas).double().log10()
    errors = held_out_errors(few.settings, few.project, x[order], y[order])
    assert torch.allclose(few.errors.double(), errors - price, rtol=1e-5)


@pytest.mark.parametrize("scale", ["relative", "absolute"])
@pytest.mark.parametrize(("n", "size"), [(50, 100), (90, 40)], ids=["wide", "tall"])
def test_the_dual_and_the_primal_form_choose_by_the_same_errors(
    n: int, size: int, scale: Any
) -> None:
    x, y = draw(n, classes=6)
    betas = (1e-3, 1e-1, 10.0) if scale == "relative" else (1e2, 1e4, 1e6)
    head = head_with(size, *betas, scale=scale).double()
    one, other = (
        held_out_errors(head.settings, head.project, x.double(), y, dual) for dual in (True, False)
    )
    assert torch.allclose(one, other, rtol=1e-9) and one.all()


def test_numbers_of_classes_are_of_no_matter_to_the_evidence() -> None:
    x, y = draw(50, classes=6)
    head = head_with(100)
    found = head.evidence(x, y)
    assert found is not None
    assert torch.equal(found, head.evidence(x, 3 * y + 100))  # of a later session, with gaps


@pytest.mark.parametrize("kind", ["class", "domain", "mixed"])
def test_the_evidence_of_all_sessions_is_added_up_and_that_of_a_session_replaces_it(
    kind: str,
) -> None:
    shifts = {"class": (0, 4, 8), "domain": (0, 0, 0), "mixed": (0, 2, 1)}[kind]
    sessions = [
        (x, y + shift)
        for (x, y), shift in zip((draw(30, seed=i) for i in range(3)), shifts, strict=True)
    ]
    both, last = (
        head_with(20, 1e-2, 1e-1, 1.0, evidence=evidence) for evidence in ("all", "session")
    )
    for head in (both, last):
        alone = []
        for x, y in sessions:
            single = head_with(20, 1e-2, 1e-1, 1.0, evidence=head.settings.evidence)
            for each in (head, single):
                each.add(x, y)
            alone.append(single.errors)
        errors = sum(alone) if head is both else alone[-1]
        assert torch.allclose(head.errors, errors, rtol=1e-6)
        assert head.beta == pytest.approx(
            (1e-2, 1e-1, 1.0)[int(errors.argmin())] * head.statistics.unit
        )


@pytest.mark.parametrize(("evidence", "price"), [("all", 0.002), ("session", 0.0)])
def test_a_tenth_of_beta_has_a_price_where_all_sessions_choose_it_and_none_as_published(
    evidence: Any, price: float
) -> None:
    (x, y), betas = draw(30), (1e-46, 1e-2, 1.0, 1e39)  # also such as float32 has not
    head = head_with(40, *betas, evidence=evidence, scale="absolute")
    head.add(x, y)
    order = torch.randperm(30, generator=generator(0, "beta"))
    errors = held_out_errors(head.settings, head.project, x[order], y[order])
    wanted = errors - price * 6 * torch.from_numpy(np.log10(betas))
    assert head.errors.isfinite().all() and torch.allclose(head.errors.double(), wanted, rtol=1e-5)


@pytest.mark.parametrize("evidence", ["all", "session"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_too_few_pictures_to_hold_any_out_take_the_middle_of_the_grid(
    n: int, evidence: Any
) -> None:
    head = head_with(20, 1.0, 2.0, 3.0, scale="absolute", evidence=evidence)
    head.add(*draw(n))
    assert head.beta == 2.0
    head.solve()
    assert head.logits(draw(3)[0]).isfinite().all()


def test_a_session_of_too_few_pictures_leaves_the_evidence_of_the_one_before() -> None:
    head = head_with(20, 1e-3, 1e-1, 10.0, evidence="session")
    head.add(*draw(30))
    before = head.errors.clone()
    head.add(*draw(4))
    assert torch.equal(head.errors, before) and before.any()


@pytest.mark.parametrize("evidence", ["all", "session"])
def test_a_class_that_is_only_held_out_counts_as_an_error(evidence: Any) -> None:
    x, _ = draw(7)
    y = torch.zeros(7, dtype=torch.long)
    y[torch.randperm(7, generator=generator(0, "beta"))[-1]] = 5
    head = head_with(6, 1e-2, 1.0, evidence=evidence)
    head.add(x, y)
    assert (
        head.errors > 1
    ).all()  # (0 − 1)² for the class that was not fitted, and what goes to the other


# -- memory and state ------------------------------------------------------------------------------


def test_a_size_that_does_not_fit_is_refused() -> None:
    """Before anything is made, a projection of 48 TB among it."""
    with raises("ridge.memory", size="1000000000000", device="cpu"):
        head_with(10**12)


def test_a_state_brings_its_own_classes_and_goes_on_as_if_never_saved() -> None:
    x, y = draw(30)
    head = head_with(25, 1e-2, 1e-1, 1.0)
    head.add(x, y)
    head.solve()
    twin = head_with(25, 1e-2, 1e-1, 1.0)
    twin.load_state_dict({key: value.clone() for key, value in head.state_dict().items()})
    assert torch.equal(head.logits(x), twin.logits(x))
    for each in (head, twin):
        each.add(x[:10], y[:10] + 3)
        each.solve()
    assert head.beta == twin.beta
    assert torch.equal(head.logits(x), twin.logits(x)) and head.logits(x).shape[1] == 7
