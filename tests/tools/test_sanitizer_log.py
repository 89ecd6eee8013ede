"""Reports of compute-sanitizer: each one found, the known ones told from the new ones."""

import sanitizer_log
from sanitizer_log import Known

LOG = """\
[ RUN      ] Gpu.Forward
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at attn_kernel+0x70
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Error: Race reported between Write access at attn_kernel+0x90
=========     and Read access at attn_kernel+0xb0 [12 hazards]
=========
========= ERROR SUMMARY: 2 errors
"""


def test_reports_are_split_at_their_headlines():
    first, second = sanitizer_log.reports(LOG)
    assert first.startswith("Invalid __global__ write of size 4 bytes\nat attn_kernel+0x70")
    assert second.endswith("and Read access at attn_kernel+0xb0 [12 hazards]")


def test_a_known_report_is_known_to_its_tool_only():
    found = sanitizer_log.reports(LOG)
    known = [Known("racecheck", r"Race reported.*\+0x90", "ordered by a barrier the tool does not see")]
    assert sanitizer_log.unknown(found, "racecheck", known) == found[:1]
    assert sanitizer_log.unknown(found, "memcheck", known) == found


def test_a_program_that_dies_leaves_no_summary():
    assert sanitizer_log.finished(LOG)
    assert not sanitizer_log.finished(LOG.rsplit("\n", 2)[0])
