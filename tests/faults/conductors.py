"""Conductors that die, stop, and are told to end."""
import signal
import time

from scene import fault

PART = 'conductor'


@fault(PART, 'the conductor is killed, and started again', cut=True)
def conductor_killed(s):
    s.native()
    s.load()
    with s.hits('conductor'):
        s.kill('conductor')
        s.restart_conductor()
        s.town.wait_ready(2, 2)
    s.more()


@fault(PART, 'the conductor is killed with a prefill worker and a decode '
             'worker, and all are started again', cut=True)
def conductor_and_workers_killed(s):
    s.native()
    s.load()
    with s.hits('conductor'):
        for name in 'conductor', 'p0', 'd0':
            s.kill(name)
        s.restart_conductor()
        s.town.start_worker('p0', 'prefill')
        s.town.start_worker('d0', 'decode')
        s.town.wait_ready(2, 2)
    s.more()


@fault(PART, 'the conductor stops for 2 s, longer than workers may be silent')
def conductor_stopped(s):
    s.native()
    s.load()
    with s.hits('conductor'), s.stopped('conductor'):
        time.sleep(2)
    s.more()
    s.town.wait_ready(2, 2)


@fault(PART, 'the conductor is told to end, and started again', cut=True)
def conductor_ends(s):
    s.native(config={'drain_limit_ms': 5000})
    s.load()
    with s.hits('conductor'):
        s.signal('conductor', signal.SIGTERM)
        s.assertEqual(s.town.conductor.wait(), 0)
        s.restart_conductor()
        s.town.wait_ready(2, 2)
    s.more()


@fault(PART, 'workers find no conductor for 3 s')
def conductor_late(s):
    s.native()
    with s.hits('conductor'):
        s.kill('conductor')
        time.sleep(3)
        s.restart_conductor()
        s.town.wait_ready(2, 2)
    s.load()
    s.more()
