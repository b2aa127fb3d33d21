"""An index that is smaller than what the workers hold, and its healing."""
import contextlib
import functools
import random
import socket
import struct
import threading

from harness import BLOCK_TOKENS, Case, Peer, wait_until

STORED, REMOVED, CLEARED, MARK, INVENTORY = 26, 27, 28, 29, 13


class Holder(Peer):
    """A worker that takes no work and says what it holds."""

    def __init__(self, port, name, blocks=100000, **hello):
        super().__init__(port)
        self.lock = threading.Lock()
        self.name = name
        self.asked = 0
        self.over = threading.Event()
        self.send(self.hello(name=name, capacity_blocks=blocks, **hello))
        kind, payload = self.receive()
        if kind != self.WELCOME:
            raise AssertionError(payload)
        for work in self.listen, self.beat:
            threading.Thread(target=work, daemon=True).start()

    def say(self, kind, payload=b''):
        with self.lock:
            self.send(self.frame(kind, payload))

    def listen(self):
        try:
            while (got := self.receive()) is not None:
                if got[0] == INVENTORY:
                    self.asked += 1
                    self.on_asked()
        except OSError:
            pass

    def on_asked(self):
        """Does not answer."""

    def beat(self):
        """It is not silent, and never ready for work."""
        try:
            while not self.over.wait(0.3):
                self.removed([])
        except OSError:
            pass

    def stored(self, keys, parent=0, tier=1):
        self.say(STORED, struct.pack(f'<BQI{len(keys)}Q', tier, parent,
                                     len(keys), *keys))

    def removed(self, keys, tier=1):
        self.say(REMOVED, struct.pack(f'<BI{len(keys)}Q', tier, len(keys),
                                      *keys))

    def leave(self):
        self.over.set()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was faster
        self.close()


class Teller(Holder):
    """One that sends its inventory when it is asked, without the first key."""

    def __init__(self, *args, **kwargs):
        self.keys = []
        super().__init__(*args, **kwargs)

    def hold(self, keys):
        self.keys += keys
        self.stored(keys)

    def on_asked(self):
        self.say(MARK, b'\0')
        self.stored(self.keys[:len(self.keys) // 2])
        self.removed(self.keys[:1])
        self.stored(self.keys[len(self.keys) // 2:], self.keys[0])
        self.say(MARK, b'\1')


class SmallIndex(Case):
    # 1 MiB holds some 58,000 blocks in full pages.
    CROWD, EACH = 20, 4000

    def setUp(self):
        super().setUp()
        self.random = random.Random(1)
        self.peers = []

    def tearDown(self):
        for peer in self.peers:
            peer.leave()
        super().tearDown()

    def blocks(self, n):
        return [self.random.getrandbits(64) | 1 for _ in range(n)]

    def join(self, kind, cluster, name, **hello):
        peer = kind(cluster.ports['worker'], name, **hello)
        self.peers.append(peer)
        return peer

    def crowd(self, cluster, **hello):
        """Workers that hold more than the index has room for."""
        peers = [self.join(Holder, cluster, f'c{i}', **hello)
                 for i in range(self.CROWD)]
        for peer in peers:
            peer.stored(self.blocks(self.EACH))
        wait_until('the index is full', lambda:
            cluster.api.metric('index_unindexed_blocks') > 0)
        return peers

    def disperse(self, peers):
        for peer in peers:
            peer.leave()

    def indexed(self, cluster, name):
        return cluster.api.metric('instance_blocks', instance=name)

    def wait_applied(self, cluster, told):
        """A long message is applied over several turns: until the crowd's
        blocks and those `told` after them are indexed, or counted."""
        def applied():
            metrics = cluster.api.metrics()
            return metrics['conductor_index_unindexed_blocks'] + sum(
                n for name, n in metrics.items()
                if name.startswith('conductor_instance_blocks{'))

        wait_until('all are applied',
                   lambda: applied() >= self.CROWD * self.EACH + told)

    def conductor(self, **config):
        cluster = self.cluster(prefill=0, decode=0, config={
            'index_mib': 1, 'worker_timeout_ms': 4000, **config})
        return cluster

    def unindexed(self, cluster):
        return cluster.api.metric('index_unindexed_blocks')

    def test_heals_when_room_returns(self):
        cluster = self.conductor()
        teller = self.join(Teller, cluster, 'teller')
        crowd = self.crowd(cluster)
        mute = self.join(Holder, cluster, 'mute')
        flood = self.join(Holder, cluster, 'flood')
        held = self.blocks(4000)
        teller.hold(held)
        mute.stored(self.blocks(4000))
        flood.stored(self.blocks(4000))
        self.wait_applied(cluster, 3 * 4000)
        wait_until('they have no room for all', lambda: all(
            self.indexed(cluster, n) < 4000
            for n in ('teller', 'mute', 'flood')))
        flood.on_asked = lambda: [flood.say(MARK, b'\0') or
                                  flood.stored(self.blocks(4096))
                                  for _ in range(50)]
        self.disperse(crowd)
        # Without the block that it dropped while it told.
        wait_until('it is whole again', lambda: self.indexed(
            cluster, 'teller') == 3999, 90)
        metrics = cluster.api.metrics()
        self.assertGreaterEqual(metrics[
            'conductor_index_inventories_total{event="healed"}'], 1)
        wait_until('the one that is mute was asked', lambda: mute.asked > 0)
        wait_until('it is given up', lambda: 'mute: its inventory did not '
                   'begin in time' in cluster.conductor.log())
        self.assertEqual(teller.asked, 1)
        self.assertEqual(self.indexed(cluster, 'teller'), 3999)
        self.assertIn('worker teller: its inventory is requested',
                      cluster.conductor.log())
        self.assertEqual(cluster.api.metric('bad_frames_total'),
                         0)

    def test_those_that_are_mute_delay_nobody(self):
        """They have ten minutes to begin; others need not wait for that."""
        cluster = self.conductor(worker_timeout_ms=600000)
        mutes = [self.join(Holder, cluster, f'm{i}') for i in range(8)]
        for mute in mutes[4:]:
            mute.on_asked = functools.partial(mute.say, MARK, b'\0')
        teller = self.join(Teller, cluster, 'teller')
        crowd = self.crowd(cluster)
        for peer in mutes:
            peer.stored(self.blocks(4000))
        teller.hold(self.blocks(4000))
        self.wait_applied(cluster, 9 * 4000)
        wait_until('they have no room for all', lambda: all(
            self.indexed(cluster, p.name) < 4000
            for p in [*mutes, teller]))
        self.disperse(crowd)
        wait_until('it is whole again', lambda: self.indexed(
            cluster, 'teller') == 3999, 90)
        wait_until('all were asked', lambda: all(m.asked for m in mutes), 90)

    def test_one_that_begins_again_and_again_is_given_up(self):
        cluster = self.conductor()
        endless = self.join(Holder, cluster, 'endless')
        crowd = self.crowd(cluster)
        endless.stored(self.blocks(4000))
        self.wait_applied(cluster, 4000)
        wait_until('it has no room for all', lambda: self.indexed(
            cluster, 'endless') < 4000)

        def begin_again():
            with contextlib.suppress(OSError):
                while not endless.over.wait(0.5):
                    endless.say(MARK, b'\0')

        endless.on_asked = lambda: threading.Thread(
            target=begin_again, daemon=True).start()
        self.disperse(crowd)
        wait_until('it is given up', lambda: 'endless: its inventory did not '
                   'end in time' in cluster.conductor.log(), 60)

    def test_a_worker_tells_its_inventory(self):
        """A real worker, of which the index loses blocks to a crowd."""
        cluster = self.cluster(
            prefill=0, decode=0, both=1, engine='timed', kv_blocks=8000,
            cost={'prefill': (200, 1, 0, 0)},
            config={'index_mib': 1, 'max_retries': 0})
        stranger = Peer(cluster.ports['worker'])
        stranger.send(Peer.hello())
        stranger.receive_error()
        stranger.close()
        mark = "the other workers' fingerprint is "
        log = cluster.conductor.log()
        fingerprint = int(log[log.index(mark) + len(mark):][:16], 16)
        crowd = self.crowd(cluster, fingerprint=fingerprint)
        prompts = [[self.random.randrange(512) for _ in range(8000)]
                   for _ in range(8)]
        for prompt in prompts:
            reply = cluster.api.complete(prompt, 1).ok()
        held = 8 * (8000 // BLOCK_TOKENS)
        wait_until('blocks have no room', lambda: 0 < self.indexed(
            cluster, 'b0') < held)
        self.disperse(crowd)
        wait_until('all blocks are indexed', lambda: self.indexed(
            cluster, 'b0') == held)
        wait_until('nothing is missing', lambda: self.unindexed(cluster) == 0)
        for prompt in prompts:
            reply = cluster.api.complete(prompt, 1)
            self.assertEqual(
                reply.body['usage']['prompt_tokens_details']['cached_tokens'],
                8000 - BLOCK_TOKENS)

    def test_a_huge_capacity_gets_no_more_than_its_share(self):
        cluster = self.conductor()
        greedy = self.join(Holder, cluster, 'greedy', blocks=1 << 40)
        for _ in range(20):
            greedy.stored(self.blocks(4096))
        wait_until('it has all of it', lambda: self.unindexed(cluster) > 0)
        honest = self.join(Holder, cluster, 'honest', blocks=20000)
        honest.stored(self.blocks(16000))
        wait_until('both have room', lambda: self.indexed(
            cluster, 'honest') == 16000)
        # One that states little is not indexed beyond it.
        small = self.join(Holder, cluster, 'small', blocks=100)
        small.stored(self.blocks(400))
        wait_until('its own say', lambda: self.indexed(
            cluster, 'small') == 100)
        greedy.stored(self.blocks(4096) * 4)
        small.stored(self.blocks(16))
        wait_until('they are counted', lambda: self.unindexed(
            cluster) > 300 + 16)
        self.assertEqual(self.indexed(cluster, 'honest'), 16000)
