"""The digest of an exported file."""

from hypothesis import given
from hypothesis import strategies as st

from safecl.runtime.seal import LETTERS, is_sealed, sealed


@given(st.binary(max_size=200))
def test_a_sealed_file_is_known_and_begins_as_before(data: bytes) -> None:
    whole = sealed(data)
    assert is_sealed(whole) and whole.startswith(data)
    assert sealed(whole) != whole and is_sealed(sealed(whole))


@given(st.binary(max_size=60), st.data())
def test_any_changed_bit_or_lost_byte_is_seen(data: bytes, draw: st.DataObject) -> None:
    whole = sealed(data)
    place = draw.draw(st.integers(0, len(whole) - 1))
    bit = 1 << draw.draw(st.integers(0, 7))
    assert not is_sealed(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
    assert not is_sealed(whole[:place]) and not is_sealed(whole + b"\0")


def test_what_is_too_short_for_a_digest_is_not_sealed() -> None:
    for length in (0, 1, LETTERS - 1, LETTERS, LETTERS + 1):
        assert not is_sealed(bytes(length))
