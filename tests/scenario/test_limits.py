"""A process out of descriptors, and signals that end nothing."""
import os
import re
import resource
import signal
import socket
import time

from harness import (WORKER, Case, mostly_waits, program, settings,
                     wait_until)


def cpu_s(process):
    with open(f'/proc/{process.child.pid}/stat', encoding='ascii') as f:
        fields = f.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def open_files(process):
    return len(os.listdir(f'/proc/{process.child.pid}/fd'))


class Descriptors(Case):
    def exhausted(self, process, port):
        """What happens when process can accept nothing at port for a while:
        (seconds of CPU, of so many seconds; lines of log a second)."""
        pid = process.child.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        n, began = len(process.log().splitlines()), time.monotonic()
        resource.prlimit(pid, resource.RLIMIT_NOFILE,
                         (open_files(process), before[1]))
        waits = [socket.create_connection(('127.0.0.1', port))
                 for _ in range(5)]
        wait_until('it says so', lambda: f'port {port}: cannot accept'
                   in process.log())
        cpu, clock = cpu_s(process), time.monotonic()
        time.sleep(2.5)
        cpu, clock = cpu_s(process) - cpu, time.monotonic() - clock
        lines = len(process.log().splitlines()) - n
        rate = lines / (time.monotonic() - began + 2)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        for wait in waits:
            wait.close()
        return cpu, clock, rate

    @mostly_waits
    def test_no_listener_spins(self):
        cluster = self.cluster()
        worker = cluster.workers['p0']
        peers = int(re.search(r'for workers on 127.0.0.1:(\d+)',
                              worker.log()).group(1))
        for process, port in ((cluster.conductor, cluster.ports['http']),
                              (cluster.conductor, cluster.ports['worker']),
                              (worker, peers)):
            cpu, clock, rate = self.exhausted(process, port)
            self.assertLess(cpu, clock / 2)
            self.assertLess(rate, 3)  # two a second, however long it takes
        wait_until('it serves again', lambda: cluster.api.complete(
            'still here').status == 200)

    def limit(self, process):
        with open(f'/proc/{process.child.pid}/limits', encoding='ascii') as f:
            return [int(n) for n in re.search(
                r'Max open files +(\d+) +(\d+)', f.read()).groups()]

    def test_the_limit_is_raised_and_bounds_clients(self):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
        try:
            cluster = self.cluster()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for process in cluster.processes():
            self.assertGreater(self.limit(process)[0], 128)
        self.assertNotIn('max_connections', cluster.conductor.log())

    def test_too_low_a_limit(self):
        cluster = self.cluster(config={'max_instances': 16})
        path = os.path.join(self.folder, 'conductor.json')
        command = ['prlimit', '--nofile=240:240',
                   os.path.join(settings.build, 'conductor', 'conductor'),
                   '--config', path, '--set', 'worker_listen=127.0.0.1:0']
        few = self.start('few', command)
        wait_until('it says so', lambda: 'max_connections: 16 instead of '
                   '4096' in few.log() and 'serving' in few.log())
        few.child.send_signal(signal.SIGHUP)
        wait_until('it reads the same again', lambda: 'reload: taken: nothing; '
                   'needs a restart: nothing' in few.log())
        status, _, errors = self.run_program(
            *command, '--set', 'max_instances=256')
        self.assertEqual(status, 1)
        self.assertIn('ulimit -n', errors)
        self.assertEqual(cluster.api.complete('still here').status, 200)


class Signals(Case):
    def test_hangup(self):
        cluster = self.cluster()
        for process in cluster.processes():
            process.child.send_signal(signal.SIGHUP)
            wait_until('it says so', lambda p=process: not p.alive() or
                       'SIGHUP' in p.log() or 'reload: taken' in p.log())
            self.assertTrue(process.alive(), process.name)
        self.assertEqual(cluster.api.complete('still here').status, 200)

    @staticmethod
    def ignores(process, number):
        with open(f'/proc/{process.child.pid}/status', encoding='ascii') as f:
            mask = int(re.search(r'SigIgn:\s+(\w+)', f.read()).group(1), 16)
        return mask >> number - 1 & 1

    def test_hangup_while_it_starts(self):
        """A worker whose engine is being made; it ignores SIGPIPE from the
        first line on."""
        worker = self.start('w', [program(*WORKER), '--conductor',
                                  '127.0.0.1:1', '--name', 'w'])
        wait_until('it has begun', lambda: self.ignores(worker, signal.SIGPIPE))
        worker.child.send_signal(signal.SIGHUP)
        wait_until('it serves', lambda: not worker.alive() or
                   'listening for workers' in worker.log())
        self.assertTrue(worker.alive())
