"""What a peer that fetches may hold of a worker's blocks, and for how long: a
prefill that waits for room gets it as soon as the peer lets go, however it does
so."""
import signal
import struct

import wire
from harness import mostly_waits
from test_worker import BLOCK, WorkerCase

HELD = [7] * (6 * BLOCK)  # the prompt that a peer fetches
OTHER = [9] * (6 * BLOCK)  # the one that needs its room
KEY_SEED = 5


class Serves(WorkerCase):
    def fetch(self, link, rid=1, tokens=HELD):
        """A peer that has a fetch open."""
        peer = wire.connect(link.address)
        self.addCleanup(peer.close)
        peer.send(wire.hello(fingerprint=link.hello['fingerprint'],
                             block_tokens=BLOCK))
        peer.wait(wire.WELCOME)
        keys = wire.block_keys(tokens, BLOCK, KEY_SEED)
        peer.send(wire.frame(wire.FETCH, rid, struct.pack(
            f'<I{len(keys)}Q', len(keys), *keys)))
        chain = peer.wait(wire.FETCH_CHAIN, rid)
        return peer, struct.unpack_from('<I', chain)[0]

    def full(self):
        """A worker whose blocks a peer holds, and a prefill that waits."""
        w = self.worker('w', 'both', '--kv-blocks', '8')
        self.run_here(w, 1, HELD, 1)
        peer, n = self.fetch(w)
        self.assertEqual(n, len(HELD))
        w.prefill(2, OTHER)
        w.status(lambda s: s['queued'] == 1 and s['pinned'] == 6)
        return w, peer

    def served(self, w):
        self.assertEqual(w.prefill_done(2)['computed'], len(OTHER))
        self.idle(w)

    def test_cancelled(self):
        w, peer = self.full()
        peer.send(wire.frame(wire.CANCEL, 1))
        self.served(w)

    def test_replaced(self):
        """A second FETCH of that id is for nothing that is held."""
        w, peer = self.full()
        peer.send(wire.frame(wire.FETCH, 1, struct.pack('<IQ', 1, 5)))
        self.served(w)

    def test_peer_lost(self):
        w, peer = self.full()
        peer.close()
        self.served(w)

    @mostly_waits
    def test_silent_peer(self):
        """As one whose process was stopped."""
        w, peer = self.full()
        self.served(w)
        peer.wait_closed()
        self.assertIn('is silent', self.log('w'))

    @mostly_waits
    def test_stopped_worker(self):
        """A worker that fetches is stopped in the middle of it."""
        w = self.worker('w', 'both', '--kv-blocks', '8')
        t = self.worker('t', 'both', '--load-gbps', '0.00001')
        self.run_here(w, 1, HELD, 1)
        t.prefill(3, HELD, mode=wire.LOAD, sources=[(w.address, 0, 5)])
        w.status(lambda s: s['pinned'] >= 5)
        t.process.send_signal(signal.SIGSTOP)
        w.prefill(2, OTHER)
        self.served(w)
        self.assertIn('is silent', self.log('w'))

    @mostly_waits
    def test_peer_that_keeps_it(self):
        """A fetch of which nothing is read stays open while its peer says that
        it is wanted, which takes longer than a lease."""
        w = self.worker('w', 'both')
        t = self.worker('t', 'both', '--load-gbps', '0.000045')
        self.run_here(w, 1, HELD, 1)
        t.prefill(2, HELD[:3 * BLOCK], mode=wire.LOAD,
                  sources=[(w.address, 0, 2)])
        done = t.prefill_done(2, 60)
        self.assertEqual(done['fetched'], 2 * BLOCK)
        self.assertGreater(done['load_us'], 6e6)
        self.assertNotIn('ended', self.log('w'))

    def test_longer_than_the_window(self):
        """A prompt longer than the holder's window: what it holds is said, and
        the connection stays."""
        w = self.worker('w', 'both')
        self.run_here(w, 1, HELD, 1)
        peer, n = self.fetch(w, 1, HELD + [8] * (1 << 16))
        self.assertEqual(n, len(HELD))
        peer.send(wire.frame(wire.FETCH, 2, struct.pack('<IQ', 1, 5)))
        peer.wait(wire.FETCH_CHAIN, 2)
