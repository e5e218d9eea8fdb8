"""Held-out errors of ridge regressions against explicit ones and scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from safecl.heads.choose_beta import (
    MAX_EVIDENCE_PICTURES,
    dual_errors,
    grams,
    leave_one_out_errors,
    primal_errors,
)
from safecl.heads.gram import CHUNK, Statistics
from safecl.heads.settings import RidgeSettings


def statistics_of(h: torch.Tensor, targets: torch.Tensor) -> Statistics:
    statistics = Statistics(h.shape[1])
    statistics.add(h, targets)
    return statistics


@pytest.mark.parametrize(("n", "size"), [(40, 100), (100, 30)], ids=["wide", "tall"])
def test_held_out_errors_are_those_of_explicit_ridge_regressions(n: int, size: int) -> None:
    random = np.random.default_rng(0)
    h = random.normal(size=(n, size))
    fitted = n - n // 5
    y = np.eye(3)[random.integers(0, 3, n)]
    betas = [1e-3, 0.1, 1.0, 50.0]
    expected = []
    for beta in betas:
        w = np.linalg.solve(
            h[:fitted].T @ h[:fitted] + beta * np.eye(size), h[:fitted].T @ y[:fitted]
        )
        expected.append(((h[fitted:] @ w - y[fitted:]) ** 2).sum())
    dual = dual_errors(torch.tensor(h @ h.T), torch.tensor(y), fitted, betas)
    x = torch.tensor(h)
    targets = torch.tensor(y).argmax(dim=1)
    fit = statistics_of(x[:fitted], targets[:fitted])
    primal = primal_errors(fit, lambda part: part, x[fitted:], targets[fitted:], betas)
    assert np.allclose(dual, expected, rtol=1e-8) and np.allclose(primal, expected, rtol=1e-8)


@pytest.mark.parametrize(("n", "size"), [(12, 30), (30, 8)], ids=["wide", "tall"])
def test_leave_one_out_errors_are_those_of_as_many_regressions_as_there_are_rows(
    n: int, size: int
) -> None:
    random = np.random.default_rng(0)
    h = random.normal(size=(n, size))
    y = np.eye(3)[random.integers(0, 3, n)]
    betas = [0.1, 1.0, 50.0]
    expected = []
    for beta in betas:
        errors = []
        for i in range(n):
            rest = np.arange(n) != i
            w = np.linalg.solve(h[rest].T @ h[rest] + beta * np.eye(size), h[rest].T @ y[rest])
            errors.append(((h[i] @ w - y[i]) ** 2).sum())
        expected.append(errors)
    assert np.allclose(
        leave_one_out_errors(torch.tensor(h @ h.T), torch.tensor(y), betas), expected, rtol=1e-8
    )


@pytest.mark.parametrize(
    ("n", "size"), [(40, 60), (100, 30), (6 * CHUNK, 30)], ids=["wide", "tall", "chunks"]
)
def test_primal_errors_are_those_of_scikit_learn(n: int, size: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(n, 8))
    projection = random.normal(size=(8, size))
    targets = random.integers(0, 3, n)
    fitted = n - n // 5
    h = np.maximum(x @ projection, 0)
    betas = [0.1, 1.0, 50.0]
    expected = [
        (
            (
                Ridge(beta, fit_intercept=False)
                .fit(h[:fitted], np.eye(3)[targets[:fitted]])
                .predict(h[fitted:])
                - np.eye(3)[targets[fitted:]]
            )
            ** 2
        ).sum()
        for beta in betas
    ]
    y = torch.tensor(targets)
    found = primal_errors(
        statistics_of(torch.tensor(h[:fitted]), y[:fitted]),
        lambda part: torch.relu(part @ torch.tensor(projection)),
        torch.tensor(x[fitted:]),
        y[fitted:],
        betas,
    )
    assert np.allclose(found, expected, rtol=1e-8)


def test_values_of_beta_below_the_rounding_noise_are_solved_for_once() -> None:
    h = torch.randn(30, 10, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(30) % 3
    betas = [1e-30, 1e-20, 1.0, 1e-30]
    projected = list[int]()

    def project(part: torch.Tensor) -> torch.Tensor:
        projected.append(len(part))
        return part

    found = primal_errors(statistics_of(h, targets), project, h, targets, betas)
    assert projected == [30, 30] and found[0] == found[1] == found[3] != found[2]


def test_choosing_from_all_pictures_or_from_more_than_random_features_takes_a_second_g() -> None:
    every = RidgeSettings(evidence="session")
    sizes = (MAX_EVIDENCE_PICTURES, MAX_EVIDENCE_PICTURES - 1)
    assert [grams(RidgeSettings(), size) for size in sizes] == [1, 2]
    assert [grams(every, size) for size in (*sizes, 10**5)] == [2, 2, 2]
