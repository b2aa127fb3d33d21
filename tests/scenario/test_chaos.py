"""tests/chaos: short runs, and that a wrong answer is noticed."""
import os
import subprocess
import unittest

from harness import ROOT, settings
from redis_server import MISSING, REDIS

CHAOS = os.path.join(ROOT, 'tests', 'chaos', 'run')


def chaos(*options):
    return subprocess.run(
        [CHAOS, '--build', settings.build, '--scale', str(settings.scale),
         *options], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=300 * settings.scale)


class Chaos(unittest.TestCase):
    def test_short(self):
        done = chaos('--answers', '600', '--clients', '6')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('0 wrong', done.stdout)
        self.assertIn('workers killed', done.stdout)

    def test_soak(self):
        """A short one: each request is answered once."""
        done = subprocess.run(
            [os.path.join(ROOT, 'tests', 'chaos', 'soak'), '--build',
             settings.build, '--scale', str(settings.scale), '--minutes',
             '0.3', '--rate', '40', '--prompts', '60', '--pause', '0.5'],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=300 * settings.scale)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('workers told to end', done.stdout)

    @unittest.skipUnless(REDIS, MISSING)
    def test_conductors(self):
        """After some faults each knows what the others have in work."""
        done = subprocess.run(
            [os.path.join(ROOT, 'tests', 'chaos', 'conductors'), '--build',
             settings.build, '--scale', str(settings.scale), '--minutes',
             '0.05', '--rounds', '1', '--quiet', '0', '--clients', '2'],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=300 * settings.scale)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('round 1: whole', done.stdout)

    def test_spoiled_reference(self):
        """Wrong references are found."""
        done = chaos('--answers', '200', '--spoil', '20', '--clients', '4')
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn('FAILED wrong: prompt', done.stdout)


if __name__ == '__main__':
    unittest.main()
