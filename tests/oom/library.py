#!/usr/bin/env python3
"""library.py --tessera PATH --preload LIBRARY --work FOLDER: the JSON and YAML libraries run out of
memory, as TAP.

One allocation of jansson or libyaml after the other fails (library_oom.c) until a command succeeds
without. Every failure must be exit status 4, with a message that says so: never the user's mistake, nor a
damaged file. jansson itself ignores that it cannot lengthen a token, which is not an error then.
"""
import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / 'cli')]
sys.dont_write_bytecode = True
import fixtures  # noqa: E402
import tap  # noqa: E402

MOST = 2000  # allocations: a command that makes more of them has changed
IGNORED = 8  # tokens that jansson could not lengthen
MEMORY = 4
RULES_JSON = '{"attention": "attn|softmax", "rest": {"pattern": "x", "priority": 12, "description": null}}'
RULES_YAML = 'rules:\n- name: attention\n  pattern: attn|softmax\n- {name: rest, pattern: "x", priority: 12}\n'
# No token of it is as long as those that jansson cuts.
CONFIG = ('{"model_type": "gpt2", "vocab_size": 64, "n_embd": 8, "n_head": 2, "n_layer": 1, '
          '"n_positions": 1024, "architectures": ["xLMHeadModel"]}')
# Of each library's mistakes, one that a user makes: it must not be taken for memory.
MISTAKES = ['{"a": 1 "b"}', '{"a": bcd"}', '["a', '{"a" "b"}', '{"a": "\\q"}', '{"a": "b"}{', '{"a": "b", }',
            '{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}', 'a: [b', 'a: "b', 'a: *b']


class Runner:
    def __init__(self, given):
        self.given, self.flag = given, given.work / 'failed'

    def run(self, words, fail_at=0):
        env = dict(os.environ, TSR_FAIL_AT=str(fail_at), TSR_FAILED=str(self.flag),
                   TSR_FAIL_FROM='libjansson libyaml')
        if fail_at:
            env['LD_PRELOAD'] = str(self.given.preload)
        self.flag.unlink(missing_ok=True)
        done = subprocess.run([self.given.tessera, *words], cwd=self.given.work, env=env, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return done.returncode, done.stderr, self.flag.exists()

    def problems(self, words):
        """What is wrong, in words; None if the libraries made no allocation that could fail."""
        ignored = 0
        for number in range(1, MOST):
            status, message, has_failed = self.run(words, number)
            if not has_failed:
                if status:
                    yield f'without a failure: {status} {message}'
                if number == 1:
                    yield None
                return
            ignored += status == 0
            if status not in (0, MEMORY) or (status and 'out of memory' not in message):
                yield f'allocation {number}: {status} {message}'
            if ignored > IGNORED:
                yield f'allocation {number}: {ignored} failures were ignored'
                return
        yield 'no end'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ('--tessera', '--preload', '--work'):
        parser.add_argument(name, required=True, type=lambda text: Path(text).resolve())
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    fixtures.write(given.work / 'train.pickle', fixtures.train())
    fixtures.write_named(given.work)
    (given.work / 'config.json').write_text(CONFIG, encoding='utf-8')
    cases = {'rules in JSON': ['profile', '--rules', RULES_JSON, 'train.pickle'],
             'rules in YAML': ['profile', '--rules', RULES_YAML, 'train.pickle'],
             "rules of Mosaic's": ['mosaic_get_memory_profile', '--snapshot', 'train.pickle', '--out-path', '',
                                   '--profile', 'custom', '--custom-profile', RULES_JSON],
             'a model': ['simulate', 'config.json', '--batch', '1', '--seq', '8'],
             'a sidecar': ['peak', 'told.pickle']}
    runner = Runner(given)
    report = tap.Report()
    for title, words in cases.items():
        found = list(runner.problems(words))
        is_idle = found == [None]
        report.result(title, [] if is_idle else found, skipped='no allocation could be made to fail' if is_idle else '')
    report.result('mistakes are mistakes',
                  [text for text in MISTAKES if runner.run(['profile', '--rules', text, 'train.pickle'])[0] != 2])
    return report.end()


if __name__ == '__main__':
    sys.exit(main())
