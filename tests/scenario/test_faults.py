"""tests/faults/run: a few of the faults, and that it notices what is lost."""
import os
import subprocess
import sys
import unittest

from harness import ROOT, settings

FAULTS = os.path.join(ROOT, 'tests', 'faults', 'run')


def faults(*options):
    return subprocess.run(
        [sys.executable, FAULTS, '--build', settings.build, '--scale',
         str(settings.scale), *options], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
        timeout=300 * settings.scale)


class Faults(unittest.TestCase):
    def test_some(self):
        done = faults('--only', 'killed_in_decode,conductor_stopped,'
                      'link_silent,closes_in_the_middle')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('4 passed, 0 failed', done.stdout)

    def test_what_is_lost_is_noticed(self):
        """The fault of which the runner is told that nothing may break."""
        done = faults('--only', 'closes_in_the_middle', '--strict')
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn('FAILED closes_in_the_middle', done.stdout)
        self.assertIn(': cut: ', done.stdout)


if __name__ == '__main__':
    unittest.main()
