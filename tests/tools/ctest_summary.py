#!/usr/bin/env python3
"""Counts what ctest wrote with --output-junit. usage: ctest_summary.py FILE

First line: passed, failed and skipped. Then one line for each skipped test, "NAME: reason", and one for each
that was skipped for another reason than a missing instruction set, CUDA toolkit or framework, which counts as
failed. Exits 1 where a test failed."""
import sys
import xml.etree.ElementTree

ALLOWED = ("SKIPPED: instruction set ", "SKIPPED: CUDA toolkit: ", "SKIPPED: framework: ")


def reason_of(case):
    """What the test said of itself; None where it did not say."""
    for line in (case.findtext("system-out") or "").splitlines():
        if line.startswith(ALLOWED):
            return line[len("SKIPPED: "):]
    return None


def main():
    passed, failed, lines = 0, [], []
    for case in xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        name = case.get("name")
        # ctest writes <skipped> also for a test that could not be started or is switched off
        if case.find("skipped") is not None and case.find("skipped").get("message", "").startswith("SKIP_"):
            reason = reason_of(case)
            if reason is None:
                failed.append(f"{name}: skipped, but not for an instruction set, a CUDA toolkit or a framework")
            else:
                lines.append(f"{name}: {reason}")
        elif case.get("status") == "run" and case.find("failure") is None:
            passed += 1
        else:
            failed.append(name)
    print(passed, len(failed), len(lines))
    print("\n".join(lines + [f"FAILED {line}" for line in failed]))
    return 1 if failed else 0


sys.exit(main())
