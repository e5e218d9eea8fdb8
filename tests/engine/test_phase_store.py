"""A phase that was stopped is found again as it was, or begins again with a sentence."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.engine.checkpoint import load_state, save_state
from safecl.engine.phase_store import PhaseState, PhaseStore

Store = tuple[PhaseStore, list[str]]


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """A store, and what it says."""
    said: list[str] = []
    return PhaseStore(tmp_path / "fit_1_fast.safetensors", said.append), said


def own(value: float = 0.0) -> dict[str, Tensor]:
    return {
        "module/weight": torch.full((2, 3), value),
        "optimiser/weight/momentum_buffer": torch.full((2, 3), 2 * value),
    }


def halfway() -> PhaseState:
    state = PhaseState(step=7, attempt=1, undone=5, seconds=2.5, losses=[{"loss": 0.5}])
    state.add({"loss": torch.tensor(2.0), "cls": torch.tensor(1.5)})
    state.add({"loss": torch.tensor(4.0), "cls": torch.tensor(0.5)})
    return state


def test_what_was_saved_is_restored(kept: Store) -> None:
    store, said = kept
    store.save(halfway(), own(3.0))
    mine = own()
    state = store.load({"module/weight": mine["module/weight"]})
    assert not mine["module/weight"].any()  # until it is restored
    state.restore(mine)
    assert all(torch.equal(mine[name], tensor) for name, tensor in own(3.0).items())
    assert (state.step, state.attempt, state.undone, state.seconds) == (7, 1, 5, 2.5)
    assert state.losses == [{"loss": 0.5}] and said == []
    assert state.means() == {"loss": 3.0, "cls": 1.0}


def test_a_phase_restores_once(kept: Store) -> None:
    store, _ = kept
    store.save(halfway(), own(3.0))
    state = store.load(own())
    state.restore(own())
    later = own(9.0)
    state.restore(later)
    assert torch.equal(later["module/weight"], own(9.0)["module/weight"])


def test_the_next_attempt_begins_at_the_first_step() -> None:
    state = halfway()
    state.undo()
    assert (state.step, state.attempt, state.undone, state.count) == (0, 2, 12, 0)
    state.add({"loss": torch.tensor(1.0)})
    assert state.means() == {"loss": 1.0}


@pytest.mark.parametrize(("attempt", "slower"), [(0, 1.0), (1, 0.1), (2, 0.01), (3, 0.001)])
def test_the_file_notes_the_attempt_as_it_always_has(
    attempt: int, slower: float, kept: Store
) -> None:
    store, _ = kept
    store.save(PhaseState(step=1, attempt=attempt), own())
    assert store.file is not None and load_state(store.file)[1]["slower"] == slower
    assert store.load(own()).attempt == attempt


def test_without_a_file_nothing_is_kept(tmp_path: Path) -> None:
    said: list[str] = []
    store = PhaseStore(None, said.append)
    store.save(halfway(), own())
    assert store.load(own()) == PhaseState() and not list(tmp_path.iterdir()) and said == []


def test_what_was_never_saved_begins_without_a_word(kept: Store) -> None:
    store, said = kept
    assert store.load(own()) == PhaseState() and said == []


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("damage", "is damaged"),
        ("shape", "is of another network."),
        ("name", "is of another network."),
        ("facts", "is no checkpoint of a phase."),
        ("attempt", "is no checkpoint of a phase."),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_a_new_beginning(
    harm: str, reason: str, kept: Store
) -> None:
    store, said = kept
    store.save(halfway(), own())
    file = store.file
    assert file is not None
    wanted: dict[str, Any] = own()
    if harm == "damage":
        file.write_bytes(file.read_bytes()[:100])
    elif harm == "shape":
        wanted["module/weight"] = torch.zeros(3, 3)
    elif harm == "name":
        wanted["module/bias"] = torch.zeros(3)
    else:
        tensors, facts = load_state(file)
        save_state(file, tensors, {} if harm == "facts" else facts | {"slower": 0.5})
    assert store.load(wanted) == PhaseState()
    assert len(said) == 1 and reason in said[0] and said[0].endswith("The phase starts again.")
