"""Disks, memory and descriptors that end; clocks that jump; files that
vanish."""
import contextlib
import json
import os
import random
import resource
import signal
import sys

from harness import WORKER, program, sanitized
from scene import fault, preload

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), 'chaos'))
from trouble import DAMAGES  # noqa: E402

PART = 'resources'
DISK = {'disk_mib': 16, 'kv_blocks': 120}  # memory for two prompts


def with_disk(s, name='b0', path=WORKER):
    """One more worker of both roles, whose blocks go to its disk."""
    slab = os.path.join(s.folder, 'slab')
    s.town.start_worker(name, 'both', disk_path=slab, path=path, **DISK)
    return slab


def with_preload(s):
    """The same, with calls that can be made to fail."""
    library = preload(s)
    path = s.write('worker', f'#!/bin/sh\nLD_PRELOAD={library} '
                   f'FAULT_FOLDER={s.folder} ASAN_OPTIONS='
                   f'$ASAN_OPTIONS:verify_asan_link_order=0 '
                   f'exec {program(*WORKER)} "$@"\n')
    os.chmod(path, 0o700)
    return with_disk(s, path=(path,))


@contextlib.contextmanager
def while_there(s, name):
    path = s.write(name, '')
    try:
        yield
    finally:
        os.remove(path)


@contextlib.contextmanager
def limited(process, what, least):
    pid = process.child.pid
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (least, before[1]))
    try:
        yield
    finally:
        if process.alive():
            resource.prlimit(pid, what, before)


@fault(PART, "a worker's disk answers EIO")
def disk_eio(s):
    s.native(prefill=1, decode=1)
    with_preload(s)
    s.town.wait_ready(2, 2)
    s.load()
    with s.hits('b0'), while_there(s, 'eio'):
        s.more(30)
        s.until('it says so', lambda: 'Input/output error' in
                s.process('b0').log())
    s.more()


@fault(PART, "a worker's disk file is cut short under it")
def disk_cut(s):
    s.native(prefill=1, decode=1)
    slab = with_disk(s)
    s.town.wait_ready(2, 2)
    s.load()
    with s.hits('b0'):
        os.truncate(slab, 1 << 20)
        s.more(30)


@fault(PART, "a worker is killed and its disk file damaged before it is back")
def disk_damaged(s):
    s.native(prefill=1, decode=1)
    slab = with_disk(s)
    s.town.wait_ready(2, 2)
    s.load()
    s.more(20)
    rng = random.Random(1)
    with s.hits('b0'):
        for damage in DAMAGES.values():
            s.kill('b0')
            with open(slab, 'r+b') as f:
                damage(rng, f, os.path.getsize(slab))
            s.until('it is gone', lambda: s.town.api.instances() == (1, 1))
            with_disk(s)
            s.town.wait_ready(2, 2)
            s.more(5)


@fault(PART, "a worker's disk file is deleted under it, and it is killed")
def disk_deleted(s):
    s.native(prefill=1, decode=1)
    slab = with_disk(s)
    s.town.wait_ready(2, 2)
    s.load()
    with s.hits('b0'):
        os.remove(slab)
        s.more(10)
        s.kill('b0')
        s.until('it is gone', lambda: s.town.api.instances() == (1, 1))
        with_disk(s)
        s.town.wait_ready(2, 2)
        s.more()


@fault(PART, 'no room on the disk where a worker is to make its file')
def disk_full_at_start(s):
    s.native()
    s.load()
    with s.hits():
        s.town.start_worker('b0', 'both', disk_path=os.path.join(
            s.folder, 'slab'), disk_mib=1 << 27)
        full = s.process('b0')
        full.killed = True
        s.assertEqual(full.wait(), 1)
        s.assertIn('room', full.log())
        s.more()


@fault(PART, 'the conductor has no descriptor left', cut=True)
def conductor_descriptors(s):
    s.native()
    s.load()
    conductor = s.town.conductor
    n = len(os.listdir(f'/proc/{conductor.child.pid}/fd'))
    with s.hits():
        with limited(conductor, resource.RLIMIT_NOFILE, n - 3):
            s.until('it says so', lambda: 'cannot accept' in conductor.log())
        s.more()


@fault(PART, 'a worker has no descriptor left, and a new one comes')
def worker_descriptors(s):
    s.native()
    s.load()
    n = len(os.listdir(f'/proc/{s.process("d0").child.pid}/fd'))
    with s.hits('d0'), limited(s.process('d0'), resource.RLIMIT_NOFILE, n):
        s.town.start_worker('p2', 'prefill')
        s.town.wait_ready(3, 2)
        s.more(20)
    s.more()


def address_space(process):
    with open(f'/proc/{process.child.pid}/statm', encoding='ascii') as f:
        return int(f.read().split()[0]) * os.sysconf('SC_PAGE_SIZE')


@fault(PART, 'a worker gets no more memory (RLIMIT_AS)')
def worker_memory(s):
    s.native()
    s.load(3)
    process = s.process('p0')
    if sanitized():
        return
    with s.hits('p0'), limited(process, resource.RLIMIT_AS,
                               address_space(process)):
        s.load(6)
        s.more(30)
    s.more()


@fault(PART, 'the conductor gets no more memory (RLIMIT_AS)', refused=True,
       cut=True)
def conductor_memory(s):
    s.native()
    s.load(3)
    process = s.town.conductor
    if sanitized():
        return
    with s.hits('conductor'), limited(process, resource.RLIMIT_AS,
                                      address_space(process)):
        s.load(6)
        s.more(30)
    s.more()


@fault(PART, "the clock of a worker is an hour later at once (as a machine "
             'that slept)')
def worker_clock(s):
    s.native(prefill=1, decode=1)
    with_preload(s)
    s.town.wait_ready(2, 2)
    s.load()
    with s.hits('b0'):
        s.write('jump', '')
        s.more(20)
    s.town.wait_ready(2, 2)


@fault(PART, "the disk of the access log is full")
def log_full(s):
    s.native(config={'access_log': '/dev/full'})
    with s.hits():
        s.load()
        s.more(20)
    s.assertGreater(s.metric('access_log_lost_total'), 0)


@fault(PART, 'a limit on the length of files ends the access log')
def log_limited(s):
    path = os.path.join(s.folder, 'access.log')
    s.native(config={'access_log': path})
    with s.hits(), limited(s.town.conductor, resource.RLIMIT_FSIZE, 2000):
        s.load()
        s.more(20)
    s.until('lines are lost', lambda: s.metric('access_log_lost_total') > 0)


@fault(PART, 'tenants_file vanishes, and the configuration is read again')
def tenants_vanish(s):
    path = s.write('tenants.json', json.dumps({'tenants': []}))
    s.native(config={'tenants_file': path})
    s.load()
    with s.hits():
        os.remove(path)
        s.reload(400)
        s.more()
    s.assertIn('tenants', s.town.conductor.log())


@fault(PART, 'a bad configuration is read, over /admin and by SIGHUP')
def bad_configuration(s):
    s.native()
    s.load()
    with s.hits():
        for text in '{', '{"listen": 5}', '[]', '{"max_retries": "x"}', '':
            s.write('conductor.json', text)
            s.assertEqual(s.town.api.post('/admin/reload').status, 400)
            s.signal('conductor', signal.SIGHUP)
            s.more(3)
    s.more()
