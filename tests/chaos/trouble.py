"""What goes wrong in a chaos run: deaths, pauses and damaged files."""
import collections
import os
import random
import signal
import threading
import time

from harness import settings, wait_until

WORKER_TIMEOUT_MS = 1500
SLAB_HEADER_BYTES = 8192
PAGE_BYTES = 4096
SECTOR_BYTES = 512
DISK_MIB = 16
WORKERS = {  # name: role, options
    'p0': ('prefill', {'load_mode': 'auto'}),
    'p1': ('prefill', {'load_mode': 'both'}),
    'b0': ('both', {'load_mode': 'layerwise', 'transports': 'tcp'}),
    'd0': ('decode', {}),
    'd1': ('decode', {}),
}
READY = 3, 3  # instances for prefill and for decode


class Town:
    """A conductor and its workers, each of which may die and come back."""

    def __init__(self, case, args):
        self.case = case
        self.options = {'kv_blocks': args.kv_blocks, 'engine': args.engine}
        if args.transports:
            self.options['transports'] = args.transports
        self.epoch = 0  # odd while the conductor is down
        self.cluster = case.new_cluster({
            'heartbeat_ms': 100, 'worker_timeout_ms': WORKER_TIMEOUT_MS})

    def start(self):
        self.cluster.start_conductor()
        ports = self.cluster.ports  # the same after each restart
        self.cluster.config.update(
            listen=f'127.0.0.1:{ports["http"]}',
            worker_listen=f'127.0.0.1:{ports["worker"]}')
        for name in WORKERS:
            self.start_worker(name)
        self.cluster.wait_ready(*READY)

    def slab(self, name):
        return os.path.join(self.case.folder, name + '.slab')

    def start_worker(self, name):
        role, options = WORKERS[name]
        self.cluster.start_worker(
            name, role, disk_path=self.slab(name), disk_mib=DISK_MIB,
            **options | self.options)

    def kill_conductor(self):
        self.epoch += 1
        self.forget(self.cluster.conductor)

    def restart_conductor(self):
        self.cluster.start_conductor()
        self.epoch += 1

    def kill_worker(self, name):
        self.forget(self.cluster.workers[name])

    def forget(self, process):
        """Kills it; what is alive when all is over must end well."""
        process.kill()
        self.case.processes.remove(process)

    def dead(self):
        """Processes that ended without being killed."""
        return [p for p in self.cluster.processes()
                if not p.killed and not p.alive()]


def flip_bits(rng, file, size):
    for _ in range(rng.randrange(1, 200)):
        at = rng.randrange(SLAB_HEADER_BYTES, size)
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1 << rng.randrange(8)]))


def overwrite(rng, file, size):
    """Sectors of noise."""
    for _ in range(rng.randrange(1, 100)):
        file.seek(rng.randrange(SLAB_HEADER_BYTES, size - SECTOR_BYTES))
        file.write(rng.randbytes(SECTOR_BYTES))


def misplace(rng, file, size):
    """Pages that a disk wrote somewhere else: sound, but not of this place."""
    pages = range(SLAB_HEADER_BYTES // PAGE_BYTES, size // PAGE_BYTES - 8)
    for _ in range(rng.randrange(1, 50)):
        file.seek(rng.choice(pages) * PAGE_BYTES)
        data = file.read(rng.choice((1, 8)) * PAGE_BYTES)
        file.seek(rng.choice(pages) * PAGE_BYTES)
        file.write(data)


def cut_short(rng, file, size):
    file.truncate(rng.randrange(SLAB_HEADER_BYTES, size))


DAMAGES = {
    'files with flipped bits': flip_bits,
    'files overwritten': overwrite,
    'files with misplaced pages': misplace,
    'files cut short': cut_short,
}


class Trouble(threading.Thread):
    """Makes trouble for a town, one thing after another, until told to stop;
    then all runs again."""

    def __init__(self, town, seed, mean_pause_s):
        super().__init__(daemon=True)
        self.town = town
        self.rng = random.Random(seed)
        self.mean_pause_s = mean_pause_s
        self.over = threading.Event()
        self.calm = threading.Event()
        self.counts = collections.Counter()
        self.failure = None

    def run(self):
        kinds = (self.kill_workers, self.stop_worker, self.kill_conductor,
                 self.stop_conductor)
        try:
            self.kill_workers()  # at once, so that no run is without
            while not self.over.wait(
                    self.rng.expovariate(1 / self.mean_pause_s)):
                self.rng.choices(kinds, (6, 3, 1, 1))[0]()
                dead = self.town.dead()
                if dead:
                    self.failure = f'{dead[0].name} ended by itself'
                    return
        except Exception as e:  # noqa: BLE001, told by the main thread
            self.failure = repr(e)
        finally:
            self.calm.set()
        # The programs that this thread started die with it (harness.Process).
        threading.Event().wait()

    def stop(self):
        """Waits for the end of the last trouble; everything is started again
        then, though not ready yet."""
        self.over.set()
        if not self.calm.wait(60 * settings.scale):
            self.failure = 'the last trouble does not end'

    def kill_workers(self):
        names = self.rng.sample(sorted(WORKERS), self.rng.choice((1, 1, 1, 2)))
        for name in names:
            self.town.kill_worker(name)
            self.counts['workers killed'] += 1
        if self.rng.random() < 0.5:
            for name in names:
                self.damage(self.town.slab(name))
        time.sleep(self.rng.uniform(0, 0.5))
        for name in names:
            self.town.start_worker(name)

    def damage(self, path):
        """Behind the slab's own header: with that one damaged, the worker
        refuses the file and ends."""
        kind = self.rng.choice(sorted(DAMAGES))
        with open(path, 'r+b') as file:
            DAMAGES[kind](self.rng, file, os.path.getsize(path))
        self.counts[kind] += 1

    def stop_worker(self):
        """For a moment, or for so long that it counts as gone."""
        name = self.rng.choice(sorted(WORKERS))
        moment = self.rng.random() < 0.7
        self.pause(self.town.cluster.workers[name],
                   self.rng.uniform(0.1, 1) if moment else
                   WORKER_TIMEOUT_MS / 1000 + self.rng.uniform(0.2, 1))
        self.counts['workers stopped'] += 1

    def kill_conductor(self):
        self.town.kill_conductor()
        time.sleep(self.rng.uniform(0, 0.3))
        self.town.restart_conductor()
        self.counts['conductors killed'] += 1

    def stop_conductor(self):
        self.pause(self.town.cluster.conductor, self.rng.uniform(0.1, 1))
        self.counts['conductors stopped'] += 1

    @staticmethod
    def pause(process, seconds):
        process.child.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.child.send_signal(signal.SIGCONT)


def wait_calm(town):
    """Until all instances are back and no request holds anything; 30 s is
    enough for every timeout of a worker."""
    def back():
        return town.cluster.api.instances() == READY
    wait_until('all instances are back', back)

    def idle():
        metrics = town.cluster.api.metrics()
        return not any(
            value for key, value in metrics.items()
            if key.startswith(('conductor_instance_kv_pinned_tokens',
                               'conductor_requests_in_flight')))
    wait_until('nothing is pinned and nothing in flight', idle)
