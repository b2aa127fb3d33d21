"""Workers that die, stop, are told to end, and come back."""
import os
import signal

from scene import fault

GONE_S = 2.5  # longer than a worker may be silent
PART = 'worker'


@fault(PART, 'a prefill worker is killed while it prefills')
def killed_in_prefill(s):
    s.native()
    s.load()
    s.until_busy('p0')
    with s.hits('p0'):
        s.kill('p0')
    s.until_gone('p0')
    s.more()


@fault(PART, 'a prefill worker stops while it prefills, counts as lost, and '
             'goes on')
def stopped_in_prefill(s):
    s.native()
    s.load()
    s.until_busy('p0')
    with s.hits('p0'), s.stopped('p0'):
        s.until_gone('p0')
        s.more()
    s.town.wait_ready(2, 2)


@fault(PART, 'a prefill worker is told to end while it prefills')
def told_to_end_in_prefill(s):
    s.native()
    s.load()
    s.until_busy('p0')
    with s.hits():  # nothing may break
        s.signal('p0', signal.SIGTERM)
    s.assertEqual(s.process('p0').wait(), 0)
    s.process('p0').killed = True
    s.more()


@fault(PART, 'a decode worker is killed while it decodes')
def killed_in_decode(s):
    s.native()
    s.load()
    s.until_busy('d0', 'decodes')
    with s.hits('d0'):
        s.kill('d0')
    s.until_gone('d0')
    s.more()


@fault(PART, 'a decode worker stops while it decodes, counts as lost, and '
             'goes on')
def stopped_in_decode(s):
    s.native()
    s.load()
    s.until_busy('d0', 'decodes')
    with s.hits('d0'), s.stopped('d0'):
        s.until_gone('d0')
        s.more()
    s.town.wait_ready(2, 2)


@fault(PART, 'a decode worker stops for less than its timeout')
def stopped_shortly(s):
    s.native()
    s.load()
    s.until_busy('d0', 'decodes')
    with s.hits(), s.stopped('d0'):
        s.more(3)
    s.more()


@fault(PART, 'a decode worker is told to end while it decodes')
def told_to_end_in_decode(s):
    s.native()
    s.load()
    s.until_busy('d0', 'decodes')
    with s.hits():
        s.signal('d0', signal.SIGTERM)
    s.assertEqual(s.process('d0').wait(), 0)
    s.process('d0').killed = True
    s.more()


@fault(PART, 'a decode worker is drained with a limit of 1 ms')
def drained_with_limit(s):
    s.native()
    s.load()
    s.until_busy('d0', 'decodes')
    with s.hits('d0'):
        s.assertEqual(s.town.api.post(
            '/admin/instances/d0/drain?limit_ms=1').status, 200)
    s.until('it has no work', lambda: s.metric('decodes', 'd0') == 0)
    s.more()


@fault(PART, 'a decode worker is killed while KV is pushed to it')
def killed_as_kv_comes(s):
    s.native()
    s.load()
    with s.hits('d0'), s.stopped('d0'):
        s.until('KV waits for it', lambda: s.metric('decodes', 'd0') > 0)
        s.kill('d0')
    s.until_gone('d0')
    s.more()


@fault(PART, 'a prefill worker is killed while it pushes KV')
def killed_as_it_pushes(s):
    s.native()
    s.load()
    with s.hits('p0', 'd0'), s.stopped('d0'):  # what p0 sends stays on its way
        s.until('p0 has some for it', lambda: s.metric('decodes', 'd0') > 0)
        s.until_busy('p0', 'kv_pinned_tokens')
        s.kill('p0')
    s.until_gone('p0')
    s.more()


def fetching(s):
    """p1 loads slowly what p0 has."""
    s.native(prefill=0, decode=1, fetches=True)
    for name, more in (('p0', {}), ('p1', {'load_gbps': 0.01,
                                           'load_mode': 'load'})):
        s.town.start_worker(name, 'prefill', **more)
        s.town.wait_ready(len(s.town.workers) - 1, 1)
        if name == 'p0':
            for question in s.references:
                s.assertEqual(s.ask(s.rng, False, question).outcome, 'right')
    s.load()
    s.until('p1 fetches', lambda: s.fetched() > 0)


@fault(PART, 'the source is killed while blocks are fetched from it')
def source_killed(s):
    fetching(s)
    with s.hits('p0'):
        s.kill('p0')
    s.until_gone('p0')
    s.more()


@fault(PART, 'a worker is killed while it fetches')
def fetcher_killed(s):
    fetching(s)
    with s.hits('p1'):
        s.kill('p1')
    s.until_gone('p1')
    s.more()


@fault(PART, 'the source stops while blocks are fetched from it')
def source_stopped(s):
    fetching(s)
    with s.hits('p0'), s.stopped('p0'):
        s.until_gone('p0')
        s.more(3)
    s.town.wait_ready(2, 1)


@fault(PART, 'the only prefill worker is killed, and started under its name',
       refused=True)
def only_prefill(s):
    s.native(prefill=1)
    s.load()
    s.until_busy('p0')
    with s.hits('p0'):
        s.kill('p0')
        s.until_gone('p0')
    s.town.start_worker('p0', 'prefill')
    s.town.wait_ready(1, 2)
    s.more()


@fault(PART, 'the only decode worker is killed, and started under its name',
       refused=True)
def only_decode(s):
    s.native(decode=1)
    s.load()
    s.until_busy('d0', 'decodes')
    with s.hits('d0'):
        s.kill('d0')
        s.until_gone('d0')
    s.town.start_worker('d0', 'decode')
    s.town.wait_ready(2, 1)
    s.more()


@fault(PART, 'all workers are killed at once, and started again',
       refused=True)
def all_workers(s):
    s.native()
    s.load()
    names = sorted(s.town.workers)
    with s.hits(*names):
        for name in names:
            s.kill(name)
        for name in names:
            s.until_gone(name)
    for name in names:
        s.town.start_worker(
            name, 'prefill' if name[0] == 'p' else 'decode')
    s.town.wait_ready(2, 2)
    s.more()


@fault(PART, 'a worker of both roles is killed, one of two')
def both_roles(s):
    s.native(prefill=0, decode=0, both=2)
    s.load()
    s.until_busy('b0', 'decodes')
    with s.hits('b0'):
        s.kill('b0')
    s.until_gone('b0')
    s.more()


@fault(PART, 'a stopped worker is replaced by one of its name')
def replaced(s):
    s.native()
    s.load()
    with s.hits('p0'):
        old = s.process('p0')
        s.signal('p0', signal.SIGSTOP)
        s.town.start_worker('p0', 'prefill')
        s.until('the new one has joined', lambda: s.town.conductor.log().count(
            'worker p0 joined') == 2)
        s.more()
        old.killed = True
        os.kill(old.child.pid, signal.SIGKILL)
    s.town.wait_ready(2, 2)


@fault(PART, 'a worker is killed five times in a row, and comes back')
def flapping(s):
    s.native()
    s.load()
    with s.hits('d0'):
        for _ in range(5):
            s.kill('d0')
            s.until('it is gone',
                    lambda: s.town.api.instances() == (2, 1))
            s.town.start_worker('d0', 'decode')
            s.town.wait_ready(2, 2)
            s.more(2)
