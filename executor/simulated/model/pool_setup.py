"""The setup of a whole deployment."""

from __future__ import annotations

from dataclasses import dataclass

from executor.simulated.model.parameters import Calibration
from executor.simulated.model.setup import DecodeSetup, PrefillSetup


@dataclass(frozen=True, kw_only=True)
class PoolSetup:
    """A prefill engine and a decode engine behind a router, or (`mixed`) one engine that is both."""

    prefill: PrefillSetup
    decode: DecodeSetup
    calibration: Calibration
    mixed: bool = False
