"""Device memory and processes from npu-smi."""

from __future__ import annotations

from executor.engines.npu_smi import DeviceProcess, parse_npu_smi
from tests.executor.engines.field_samples import field_text

BUSY = """\
| npu-smi 24.1.rc2                 Version: 24.1.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 2     910B3               | Warning       | 101.3       51                0    / 0             |
| 0                         | 0000:C1:00.0  | 37          0    / 0          61021/ 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 2       0                 | 4242          | sglang::scheduler        | 57810                   |
+===========================+===============+====================================================+
"""


def test_an_idle_node_of_sixteen_dies() -> None:
    """About 3 GB in use without any process is the driver's reservation, not a leak."""
    report = parse_npu_smi(field_text("npu_smi/01_a3_16die_idle.txt"))
    assert (report.version, report.npus, len(report.dies)) == ("25.3.rc1", 8, 16)
    assert [die.hbm_used_mb for die in report.dies][:3] == [3176, 2875, 3163]
    assert {die.hbm_total_mb for die in report.dies} == {65536}
    assert {die.health for die in report.dies} == {"OK"}
    assert [die.physical_id for die in report.dies] == list(range(16))
    assert report.dies[1].power_w is None
    assert (report.processes, report.busy_dies()) == ((), ())


def test_a_busy_die_names_its_process() -> None:
    """Who holds the memory is known before anything is launched; an older table has no physical id."""
    report = parse_npu_smi(BUSY)
    assert report.processes == (DeviceProcess(npu=2, chip=0, pid=4242, name="sglang::scheduler", memory_mb=57810),)
    (die,) = report.busy_dies()
    assert (die.npu, die.name, die.health, die.hbm_used_mb, die.physical_id) == (2, "910B3", "Warning", 61021, None)
    assert (die.utilisation_percent, die.temperature_c) == (37, 51)


def test_text_without_a_table_has_no_dies() -> None:
    """A missing tool is an empty report, not an error."""
    report = parse_npu_smi("bash: npu-smi: command not found\n| odd | row |\n|||\n")
    assert (report.version, report.dies, report.processes) == (None, (), ())
