"""`npu-smi info` as numbers: memory and health of every die, and who holds it.

A die without any process still shows about 3 GB in use: the driver's own reservation, not a leak.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

IDLE_RESERVATION_MB = 4096
_VERSION = re.compile(r"npu-smi\s+(\S+)")
_USAGE = re.compile(r"(\d+)\s*/\s*(\d+)")


@dataclass(frozen=True, kw_only=True)
class Die:
    """One chip of one NPU. Memory is HBM in MB; `None` where the tool prints none."""

    npu: int
    chip: int
    physical_id: int | None
    name: str
    health: str
    hbm_used_mb: int | None
    hbm_total_mb: int | None
    utilisation_percent: int | None
    power_w: float | None
    temperature_c: int | None


@dataclass(frozen=True, kw_only=True)
class DeviceProcess:
    """One process that holds device memory."""

    npu: int
    chip: int | None
    pid: int
    name: str
    memory_mb: int | None


@dataclass(frozen=True, kw_only=True)
class NpuReport:
    """One call of the tool on one host."""

    version: str | None
    dies: tuple[Die, ...]
    processes: tuple[DeviceProcess, ...]

    @property
    def npus(self) -> int:
        return len({die.npu for die in self.dies})

    def busy_dies(self, reservation_mb: int = IDLE_RESERVATION_MB) -> tuple[Die, ...]:
        """Dies with a process, or with more memory in use than an idle die reserves."""
        held = {(process.npu, process.chip) for process in self.processes}
        return tuple(
            die
            for die in self.dies
            if (die.npu, die.chip) in held
            or (die.npu, None) in held
            or (die.hbm_used_mb is not None and die.hbm_used_mb > reservation_mb)
        )


def parse_npu_smi(text: str) -> NpuReport:
    """The whole table. Text around it is passed over; no table is a report without dies."""
    version = _VERSION.search(text)
    dies: list[Die] = []
    processes: list[DeviceProcess] = []
    upper: list[str] | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|"):
            upper = None
        elif len(cells) == 4:
            processes += _process(cells)
        elif len(cells) == 3 and upper is None:
            upper = cells if _leading_integer(cells[0]) is not None else None
        elif len(cells) == 3 and upper is not None:
            dies += _die(upper, cells)
            upper = None
    return NpuReport(version=version[1] if version else None, dies=tuple(dies), processes=tuple(processes))


def _die(upper: list[str], lower: list[str]) -> list[Die]:
    """Two rows: name, health, power and temperature; then chip, bus, load and memory."""
    names, ids, measured = upper[0].split(), lower[0].split(), upper[2].split()
    npu, chip = _leading_integer(upper[0]), _leading_integer(lower[0])
    if npu is None or chip is None or len(names) < 2:
        return []
    usages = _USAGE.findall(lower[2])
    used, total = (int(number) for number in usages[-1]) if usages else (None, None)
    return [
        Die(
            npu=npu,
            chip=chip,
            physical_id=_leading_integer(ids[1]) if len(ids) > 1 else None,
            name=names[1],
            health=upper[1],
            hbm_used_mb=used,
            hbm_total_mb=total,
            utilisation_percent=_leading_integer(lower[2]),
            power_w=_decimal(measured[0]) if measured else None,
            temperature_c=_leading_integer(measured[1]) if len(measured) > 1 else None,
        )
    ]


def _process(cells: list[str]) -> list[DeviceProcess]:
    ids, pid = cells[0].split(), _leading_integer(cells[1])
    if pid is None or not ids or _leading_integer(ids[0]) is None:
        return []
    return [
        DeviceProcess(
            npu=int(ids[0]),
            chip=_leading_integer(ids[1]) if len(ids) > 1 else None,
            pid=pid,
            name=cells[2],
            memory_mb=_leading_integer(cells[3]),
        )
    ]


def _leading_integer(text: str) -> int | None:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None


def _decimal(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
