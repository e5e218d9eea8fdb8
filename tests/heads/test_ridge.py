"""The ridge head against float64 closed forms and scikit-learn; its statistics add up in any order."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from safecl.errors import SafeclError
from safecl.heads import RidgeHead, RidgeSettings
from safecl.heads import ridge as module
from safecl.heads.ridge import dual_errors, leave_one_out_errors

WIDTH = 12


def draw(n: int, classes: int = 4, seed: int = 0, width: int = WIDTH) -> tuple[torch.Tensor, torch.Tensor]:
    """Clustered features of the length a ViT gives, and their classes; every class comes up."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(classes, width))
    targets = random.permutation(np.arange(n) % classes)
    features = centres[targets] + random.normal(size=(n, width))
    features *= 20 / np.linalg.norm(features, axis=1, keepdims=True)
    return torch.tensor(features, dtype=torch.float32), torch.tensor(targets)


def head_with(size: int, *betas: float, seed: int = 0, width: int = WIDTH, scale: Any = "relative") -> RidgeHead:
    grid = {"betas": betas} if betas else {}
    return RidgeHead(width, RidgeSettings(size=size, scale=scale, **grid), seed)


def project(head: RidgeHead, features: torch.Tensor) -> np.ndarray:
    return np.maximum(features.double().numpy() @ head.projection.double().numpy(), 0)


def oracle(head: RidgeHead, features: torch.Tensor, targets: torch.Tensor, test: torch.Tensor) -> np.ndarray:
    """Logits in float64 from the smaller of the two closed forms, which are equal."""
    h, t = project(head, features), project(head, test)
    beta = max(head.beta, torch.finfo(head.projection.dtype).eps * (h**2).sum())  # the rounding noise of G
    one_hot = np.eye(int(targets.max()) + 1)[targets]
    n, m = h.shape
    if n < m:
        return t @ h.T @ np.linalg.solve(h @ h.T + beta * np.eye(n), one_hot)
    return t @ np.linalg.solve(h.T @ h + beta * np.eye(m), h.T @ one_hot)


# -- logits ---------------------------------------------------------------------------------------------------------

CASES = {"fewer pictures than features": (40, 100, 4), "more": (300, 60, 4), "one picture a class": (10, 50, 10)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("beta", [0.01, 1.0])
def test_logits_are_those_of_the_float64_closed_form_and_of_scikit_learn(case: str, beta: float) -> None:
    n, size, classes = CASES[case]
    (x, y), (test, _) = draw(n, classes), draw(30, classes, seed=5)
    head = head_with(size, beta)
    head.add(x, y)
    head.solve()
    found = head.logits(test)
    assert found.shape == (30, classes)
    assert np.allclose(found, oracle(head, x, y, test), atol=1e-4)
    reference = Ridge(alpha=head.beta, fit_intercept=False).fit(project(head, x), np.eye(classes)[y])
    assert np.allclose(found, reference.predict(project(head, test)), atol=1e-4)


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
    tolerance = 1e-10 if beta > 1e-6 else 1e-8  # the oracle itself loses digits to the condition number
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
def test_a_beta_below_the_rounding_of_the_gram_matrix_still_predicts_as_float64_does(n: int, beta: float) -> None:
    (x, y), (test, _) = draw(n, width=32), draw(200, seed=5, width=32)
    head = head_with(400, beta, width=32, scale="absolute")  # absolute: far under the mean squared norm of 8e4
    head.add(x, y)
    head.solve()
    expected = oracle(head, x, y, test)
    assert np.allclose(head.logits(test), expected, atol=0.05)
    assert (head.logits(test).argmax(dim=1).numpy() == expected.argmax(axis=1)).mean() > 0.98


def test_zero_features_give_zero_logits() -> None:
    head = head_with(20)
    head.add(torch.zeros(6, WIDTH), torch.tensor([0, 1, 2, 0, 1, 2]))
    head.solve()
    assert torch.equal(head.logits(torch.zeros(2, WIDTH)), torch.zeros(2, 3))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("use", ["add", "leave_one_out"])
def test_features_that_are_not_finite_are_refused_in_a_sentence(use: str, value: float) -> None:
    with pytest.raises(SafeclError, match="not finite"):
        getattr(head_with(20), use)(torch.full((6, WIDTH), value), torch.zeros(6, dtype=torch.long))


# -- statistics -----------------------------------------------------------------------------------------------------


def test_the_statistics_are_the_gram_matrix_and_the_class_sums() -> None:
    x, y = draw(30)
    head = head_with(20)
    head.add(x, y)
    h = project(head, x)
    assert np.allclose(head.statistics.gram, h.T @ h, rtol=1e-5)
    assert np.allclose(head.statistics.sums, h.T @ np.eye(4)[y], rtol=1e-5)


def test_pictures_are_projected_a_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = draw(50)
    whole, chunked = head_with(30, 1e-2, 1e-1), head_with(30, 1e-2, 1e-1)
    whole.add(x, y)
    monkeypatch.setattr(module, "CHUNK", 7)
    sizes: list[int] = []
    real = chunked.project
    monkeypatch.setattr(chunked, "project", lambda part: sizes.append(len(part)) or real(part))
    chunked.add(x, y)
    assert max(sizes) == 7 and sum(sizes) == 50
    for head in (whole, chunked):
        head.solve()
    assert torch.allclose(whole.errors, chunked.errors, rtol=1e-4)
    assert torch.allclose(whole.logits(x), chunked.logits(x), atol=1e-4)


@given(st.lists(st.integers(2, 30), min_size=2, max_size=5), st.randoms(), st.sampled_from(["relative", "absolute"]))
def test_sessions_may_come_in_any_order(sizes: list[int], random: Any, scale: Any) -> None:
    x, y = draw(sum(sizes))
    x = x * torch.linspace(0.5, 2, len(x))[:, None]  # so that sessions differ in the scale of their features
    sessions = list(zip(x.split(sizes), y.split(sizes), strict=True))
    betas = (1e-2, 1e-1, 1.0) if scale == "relative" else (10.0, 100.0, 1000.0)
    there, back = head_with(40, *betas, scale=scale), head_with(40, *betas, scale=scale)
    for features, targets in sessions:
        there.add(features, targets)
    random.shuffle(sessions)
    for features, targets in sessions:
        back.add(features, targets)
    there.solve()
    back.solve()
    assert there.beta == pytest.approx(back.beta, rel=1e-5)
    assert torch.allclose(there.logits(x), back.logits(x), atol=1e-4)


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
            parts.statistics.gram = statistics.gram + (parts.statistics.gram if len(parts.statistics.gram) else 0)
            wide = torch.nn.functional.pad(statistics.sums, (0, shape - statistics.sums.shape[1]))
            parts.statistics.sums = wide + (parts.statistics.sums if parts.statistics.sums.shape[1] else 0)
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


# -- the choice of β ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "size"), [(40, 100), (100, 30)], ids=["wide", "tall"])
def test_held_out_errors_are_those_of_explicit_ridge_regressions(n: int, size: int) -> None:
    random = np.random.default_rng(0)
    h, fitted = random.normal(size=(n, size)), n - n // 5
    y = np.eye(3)[random.integers(0, 3, n)]
    betas = [1e-3, 0.1, 1.0, 50.0]
    expected = []
    for beta in betas:
        w = np.linalg.solve(h[:fitted].T @ h[:fitted] + beta * np.eye(size), h[:fitted].T @ y[:fitted])
        expected.append(((h[fitted:] @ w - y[fitted:]) ** 2).sum())
    found = dual_errors(torch.tensor(h @ h.T), torch.tensor(y), fitted, betas)
    assert np.allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize(("n", "size"), [(12, 30), (30, 8)], ids=["wide", "tall"])
def test_leave_one_out_errors_are_those_of_as_many_regressions_as_there_are_rows(n: int, size: int) -> None:
    random = np.random.default_rng(0)
    h, y = random.normal(size=(n, size)), np.eye(3)[random.integers(0, 3, n)]
    betas = [0.1, 1.0, 50.0]
    expected = []
    for beta in betas:
        errors = []
        for i in range(n):
            rest = np.arange(n) != i
            w = np.linalg.solve(h[rest].T @ h[rest] + beta * np.eye(size), h[rest].T @ y[rest])
            errors.append(((h[i] @ w - y[i]) ** 2).sum())
        expected.append(errors)
    assert np.allclose(leave_one_out_errors(torch.tensor(h @ h.T), torch.tensor(y), betas), expected, rtol=1e-8)


def test_leave_one_out_is_the_best_of_the_grid_and_needs_no_statistics() -> None:
    x, y = draw(25)
    head = head_with(40, 1e-2, 1e-1, 1.0)
    h = project(head, x)
    unit = (h**2).sum() / len(h)
    kernel, one_hot = torch.tensor(h @ h.T), torch.tensor(np.eye(4)[y])
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
    sessions = [draw(30, seed=10 * seed), draw(50, seed=10 * seed + 1)]
    for x, y in sessions:
        head.add(x, y)
        order = np.random.RandomState(seed).permutation(len(x))
        fit, held = order[: len(x) - len(x) // 5], order[len(x) - len(x) // 5 :]
        h, one_hot = project(head, x), np.eye(4)[y]
        unit = (h**2).sum() / len(x) if scale == "relative" else 1.0
        for i, beta in enumerate(betas):
            w = np.linalg.solve(h[fit].T @ h[fit] + beta * unit * np.eye(60), h[fit].T @ one_hot[fit])
            total[i] += ((h[held] @ w - one_hot[held]) ** 2).sum()
    assert np.allclose(head.errors, total, rtol=1e-3)
    everything = np.concatenate([project(head, x) for x, _ in sessions])
    unit = (everything**2).sum() / len(everything) if scale == "relative" else 1.0
    assert head.beta == pytest.approx(betas[int(total.argmin())] * unit, rel=1e-5)


def test_no_more_than_a_bounded_number_of_pictures_take_part_in_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHOOSING", 25)
    seen: list[tuple[int, int]] = []

    def watch(kernel: torch.Tensor, one_hot: torch.Tensor, fitted: int, betas: list[float]) -> torch.Tensor:
        seen.append((len(kernel), fitted))
        return dual_errors(kernel, one_hot, fitted, betas)

    monkeypatch.setattr(module, "dual_errors", watch)
    head_with(30).add(*draw(60))
    assert seen == [(25, 20)]


def test_too_few_pictures_to_hold_any_out_take_the_middle_of_the_grid() -> None:
    head = head_with(20, 1.0, 2.0, 3.0, scale="absolute")
    head.add(*draw(4))
    assert head.beta == 2.0
    head.solve()
    assert head.logits(draw(3)[0]).isfinite().all()


# -- projection and state -------------------------------------------------------------------------------------------


def test_the_projection_comes_from_the_seed_and_is_not_stored() -> None:
    assert torch.equal(head_with(20, seed=3).projection, head_with(20, seed=3).projection)
    assert not torch.equal(head_with(20, seed=3).projection, head_with(20, seed=4).projection)
    assert "projection" not in head_with(20).state_dict()
    many = head_with(5000, width=20).projection
    assert abs(float(many.mean())) < 0.02 and abs(float(many.std()) - 1) < 0.02


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
