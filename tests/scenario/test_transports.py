"""Transports that fail before they stand: the next one takes over, and no
request pays for it."""
import os
import resource
import socket
import unittest

from test_load import LoadCase
import wire

CALLERS = 200  # more than a door lets wait


def door_of(pid):
    """The name of the abstract socket at which it hands its slab out."""
    folder = f'/proc/{pid}/fd'
    own = {os.readlink(f'{folder}/{fd}') for fd in os.listdir(folder)}
    with open('/proc/net/unix') as file:
        rows = [line.split() for line in file]
    return next(row[-1][1:] for row in rows if f'socket:[{row[6]}]' in own
                and row[-1].startswith('@conductor-kv-'))


class Transports(LoadCase):
    def besiege(self, door):
        """Takes all places in front of it."""
        for _ in range(CALLERS):
            caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            caller.setblocking(False)
            self.addCleanup(caller.close)
            try:
                caller.connect('\0' + door)
            except BlockingIOError:
                return

    def fetch_through(self, *options):
        a = self.worker('a', 'both')
        tokens = [i * 7 % 251 for i in range(800)]
        want, _ = self.run_here(a, 1, tokens, 4)
        self.besiege(door_of(a.process.pid))
        t = self.worker('t', 'both', *options)
        t.prefill(10, tokens, 4, mode=wire.LOAD, sources=[(a.address, 0, 49)])
        done = t.prefill_done(10, 60)
        self.assertEqual(t.answer(10, done['first']), want)
        self.assertEqual(done['fetched'], 49 * 16, self.log('t'))

    def test_a_door_with_a_queue(self):
        """A stranger of this machine keeps shared memory shut: KV comes over
        TCP."""
        self.fetch_through()

    def test_a_door_with_a_queue_and_no_other_way(self):
        """TCP is there in any case."""
        self.fetch_through('--transports', 'shm')

    def test_no_long_files(self):
        """A limit on files is none on the memory for KV."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE,
                        (soft, hard))
        a = self.worker('a', 'both')
        self.run_here(a, 1, [1] * 100, 1)


if __name__ == '__main__':
    unittest.main()
