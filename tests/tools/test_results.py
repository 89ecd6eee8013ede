"""The counts that close a test run, from result files as GoogleTest and pytest write them."""

import json

import results
from results import Row

GTEST_LOG = """\
[ RUN      ] Forward.Gpu
/somewhere/forward_test.cpp:12: Skipped
no NVIDIA driver: libcuda.so.1 not found

[  SKIPPED ] Forward.Gpu (0 ms)
[ RUN      ] Forward.Quiet
[  SKIPPED ] Forward.Quiet (0 ms)
"""


def gtest_case(name, result="COMPLETED", status="RUN", **more):
    return {"name": name, "classname": "Forward", "status": status, "result": result} | more


def test_gtest_cases_are_counted_once_each(tmp_path):
    cases = [
        gtest_case("Plain"),
        gtest_case("Wrong", failures=[{"failure": "expected 1, got 2"}]),
        gtest_case("OnGpu", gpu="used"),
        gtest_case("Gpu", result="SKIPPED"),
        gtest_case("Quiet", result="SKIPPED"),
        gtest_case("DISABLED_Old", result="SUPPRESSED", status="NOTRUN"),
    ]
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"testsuites": [{"testsuite": cases}]}))
    row = Row("release cpu")
    results.read_gtest(row, result, GTEST_LOG)
    assert (row.passed, row.used_gpu, row.failures) == (2, 1, ["Forward.Wrong"])
    assert row.skipped == [
        "no NVIDIA driver: libcuda.so.1 not found",
        "no reason given",
        "Forward.DISABLED_Old is disabled",
    ]


def test_junit_cases_are_counted_once_each(tmp_path):
    result = tmp_path / "result.xml"
    result.write_text(
        """<testsuites><testsuite>
        <testcase classname="a" name="good"/>
        <testcase classname="a" name="bad"><failure message="x"/></testcase>
        <testcase classname="a" name="broken"><error message="x"/></testcase>
        <testcase classname="a" name="left_out"><skipped message="no torch"/></testcase>
        <testcase classname="a" name="fast"><properties><property name="gpu" value="used"/></properties></testcase>
        </testsuite></testsuites>"""
    )
    row = Row("python")
    results.read_junit(row, result)
    assert (row.passed, row.failures, row.skipped) == (2, ["a.bad", "a.broken"], ["no torch"])
    assert row.used_gpu == 1


def test_report_closes_with_the_count():
    rows = [Row("release core", 61.4, passed=40), Row("release cpu", 3, passed=2, failures=["Forward.Wrong"])]
    lines = results.report(rows, 64).splitlines()
    assert lines[-1] == "42 passed, 1 failed"
    assert "  release cpu: Forward.Wrong" in lines
    assert "release core          1:01      40" in lines


def test_report_names_what_was_skipped():
    lines = results.report([Row("release gpu", passed=1, skipped=["no driver"] * 3)], 1).splitlines()
    assert lines[-1] == "1 passed, 0 failed, 3 skipped"
    assert "  release gpu: 3 x no driver" in lines
