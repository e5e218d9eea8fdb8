"""The base of every typed group of settings."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Immutable, and strict about names: a key nobody knows is an error, not a silent nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
