"""Prints how far a conductor's prefills were from its cost model, if by a third
or more; usage: speed_change.py PORT
"""
import re
import signal
import sys

RATIO = re.compile(
    r'^conductor_instance_prefill_correction_ratio\{.*\} ([0-9.e+-]+)$', re.M)
ENOUGH = 4 / 3


def describe(metrics):
    ratios = [r for r in map(float, RATIO.findall(metrics)) if r != 1]
    if not ratios:
        return None
    ratio = sum(ratios) / len(ratios)
    if 1 / ENOUGH < ratio < ENOUGH:
        return None
    return (f'a prefill took {ratio:.2f} times as long as when this machine '
            'was measured')


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends without a traceback
    import urllib.request  # which takes long enough for a Ctrl-C
    with urllib.request.urlopen(f'http://127.0.0.1:{sys.argv[1]}/metrics',
                                timeout=5) as reply:
        said = describe(reply.read().decode())
    if said:
        print(said)


if __name__ == '__main__':
    main()
