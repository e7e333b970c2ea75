#!/usr/bin/env python3
"""tally.py BUILD...: what the tests of these build folders came to.

Reads the logs that `meson test` left there, prints the output of every test that failed, and ends in
one line: `N passed, N failed`, with `, N skipped` when some were. A subtest counts as one; a test
that fails without naming a subtest (it crashed, timed out, or leaked after the last one) counts as
one failure; a folder without a log is a failure too.
"""
import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def outcomes(build):
    """(test, passed, failed, skipped) for each test of one build folder."""
    logs = build / 'meson-logs'
    suites = {suite.get('name').partition('.')[2]: suite
              for suite in ET.parse(logs / 'testlog.junit.xml').getroot().iter('testsuite')}
    for line in (logs / 'testlog.json').read_text().splitlines():
        test = json.loads(line)
        cases = list(suites[test['name']]) if test['name'] in suites else []
        cases = [case for case in cases if case.tag == 'testcase']
        failed = sum(case.find('failure') is not None or case.find('error') is not None
                     for case in cases)
        skipped = sum(case.find('skipped') is not None for case in cases)
        passed = len(cases) - failed - skipped
        if test['result'] == 'SKIP' and not cases:
            skipped = 1
        elif test['result'] not in ('OK', 'SKIP', 'EXPECTEDFAIL'):
            failed = failed or 1
        elif not cases:
            passed = 1
        yield test, passed, failed, skipped


def main(builds):
    passed = failed = skipped = 0
    for build in map(Path, builds):
        try:
            results = list(outcomes(build))
        except (OSError, ET.ParseError, ValueError) as problem:
            print(f'{build}: not built, or its tests did not run: {problem}')
            results, failed = [], failed + 1
        for test, *counts in results:
            passed, failed, skipped = (a + b for a, b in zip((passed, failed, skipped), counts))
            if counts[1]:
                print(f'--- {build.name}: {test["name"]}: {test["result"]}')
                print(test.get('stdout', '').rstrip())
                print(test.get('stderr', '').rstrip())
    print(f'{passed} passed, {failed} failed' + (f', {skipped} skipped' if skipped else ''))
    return int(failed > 0 or passed == 0)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
