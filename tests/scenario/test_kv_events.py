"""Engines' KV events, subscribed to, against a recount of what was said: a
stand-in that does what no real engine does on command, and Dynamo's mocker."""
import random
import socket

import engines
import harness
from kv_feed import Feed
from publisher import Engine, Publisher


class StandIn(harness.Case):
    SEED = 4711

    def publisher(self, **options):
        port = engines.free_ports(8)
        publisher = Publisher(port, **{'replay_port': port + 4, **options})
        self.addCleanup(publisher.stop)
        return publisher

    def feed(self, publisher, **options):
        return Feed(self, publisher.port, publisher.replay_port, **options)

    def join(self, publisher, feed):
        """Publishes until the subscription has come through."""
        def through():
            publisher.publish([])
            return feed.stats()['messages'] > 0
        harness.wait_until('the feed has a message', through)

    def assertSame(self, feed, engine, n=40):
        for _ in range(n):
            prompt = engine.prompt()
            self.assertEqual(feed.match(prompt), engine.cache.leading(prompt))

    def publish(self, publisher, engine, n, **options):
        for _ in range(n):
            publisher.publish(engine.step(), **options)

    def test_all_is_well(self):
        publisher, engine = self.publisher(), Engine(self.SEED, 4)
        feed = self.feed(publisher)
        self.publish(publisher, engine, 50)
        self.join(publisher, feed)
        self.publish(publisher, engine, 150)
        feed.wait(messages=publisher.number, state='whole', lost=0)
        self.assertSame(feed, engine)

    def test_two_ranks(self):
        """Two caches of one instance, at ports in a row, theirs or ours, as
        vLLM's, or at one of ours, as simulators'."""
        for bind, one in (False, False), (True, False), (True, True):
            port = engines.free_ports(8)
            ranks = [Publisher(port + (0 if one else r), port + 4 + r,
                               connect=bind, rank=r) for r in range(2)]
            for publisher in ranks:
                self.addCleanup(publisher.stop)
            caches = [Engine(self.SEED + r, 4) for r in range(2)]
            feed = Feed(self, port, port + 4, bind=bind, ranks=2)
            for _ in range(100):
                for publisher, engine in zip(ranks, caches):
                    publisher.publish(engine.step(),
                                      form=dict if bind else list)
            feed.wait(messages=200, state='whole')
            for engine in caches:
                self.assertSame(feed, engine)
            ranks[0].publish([{'type': 'AllBlocksCleared'}])
            caches[0].cache.copies.clear()
            feed.wait(messages=201)
            for engine in caches:
                self.assertSame(feed, engine)

    def test_ranks_that_connect(self):
        """vLLM's rank r does so to port + r; no replay helps here."""
        port = engines.free_ports(2)
        second = Publisher(port + 1, connect=True, rank=1)
        self.addCleanup(second.stop)
        feed = Feed(self, port, bind=True, ranks=2)

        def heard():
            second.publish([{'type': 'AllBlocksCleared'}])
            return feed.stats()['messages']
        harness.wait_until('the second rank is heard', heard)

    def test_gaps_are_filled(self):
        for old_shape in False, True:
            publisher = self.publisher(old_shape=old_shape)
            engine, rng = Engine(self.SEED, 4), random.Random(self.SEED)
            feed = self.feed(publisher)
            self.join(publisher, feed)
            for _ in range(200):
                publisher.publish(engine.step(), lose=rng.random() < .1)
            publisher.publish([])
            stats = feed.wait(messages=publisher.number, state='whole')
            self.assertGreater(stats['gaps'], 0)
            self.assertEqual(stats['lost'], 0)
            self.assertSame(feed, engine)

    def test_answers_that_are_dropped(self):
        """As an engine does whose answers are not taken fast enough: the rest
        is asked for again, wherever the hole is."""
        for last in 100, 1000:  # there is an answer behind the hole, or none
            publisher, engine = self.publisher(), Engine(self.SEED, 4)
            self.publish(publisher, engine, 100)
            publisher.drops = {*range(20, 30), *range(80, last)}
            feed = self.feed(publisher)
            self.join(publisher, feed)
            stats = feed.wait(messages=publisher.number, state='whole')
            self.assertEqual((stats['lost'], stats['replays_failed']), (0, 0))
            self.assertSame(feed, engine)

    def test_what_is_lost_for_good(self):
        """The engine forgets more than was missed: all that was known goes,
        and what comes then is right."""
        publisher = self.publisher(remembers=3)
        engine = Engine(self.SEED, 4)
        feed = self.feed(publisher)
        self.join(publisher, feed)
        self.publish(publisher, engine, 50)
        feed.wait(messages=publisher.number)
        self.publish(publisher, engine, 20, lose=True)
        publisher.publish([])
        stats = feed.wait(state='partial', missing=20)
        self.assertEqual(stats['lost'], 18)
        publisher.publish([{'type': 'AllBlocksCleared'}])
        engine.cache.copies.clear()
        self.publish(publisher, engine, 20)
        feed.wait(messages=publisher.number - 18)
        self.assertSame(feed, engine)

    def test_a_gap_without_replay(self):
        publisher = self.publisher(replay_port=None)
        engine = Engine(self.SEED, 4)
        feed = self.feed(publisher)
        self.join(publisher, feed)
        self.publish(publisher, engine, 50)
        publisher.publish([], lose=True)
        prompt = engine.prompt()
        publisher.publish([engine.stored(prompt)])
        feed.wait(lost=1, state='partial')
        self.assertEqual(feed.match(prompt), len(prompt) // 4)

    def test_an_engine_that_restarts(self):
        """Behind something that keeps the connection: only the numbers
        tell."""
        publisher, engine = self.publisher(), Engine(self.SEED, 4)
        feed = self.feed(publisher)
        self.join(publisher, feed)
        self.publish(publisher, engine, 50)
        feed.wait(messages=publisher.number)
        earlier = publisher.number
        publisher.number, publisher.sent = 0, []
        engine.cache.copies.clear()
        self.publish(publisher, engine, 5, lose=True)
        self.publish(publisher, engine, 5)
        stats = feed.wait(messages=earlier + 10, state='whole', restarts=1)
        self.assertEqual((stats['lost'], stats['reconnects']), (0, 0))
        self.assertSame(feed, engine)

    def test_a_longer_life_than_before(self):
        """Twice, it has published more than in its earlier life before it is
        connected again: its numbers look like a gap."""
        for bind in False, True:
            publisher = self.publisher(connect=bind)
            engine = Engine(self.SEED, 4)
            feed = self.feed(publisher, bind=bind)
            self.join(publisher, feed)
            self.publish(publisher, engine, 20)
            feed.wait(messages=publisher.number)
            for _ in range(2):
                earlier = publisher.number
                publisher.stop()
                publisher.start()
                engine.cache.copies.clear()
                # Before anybody is connected: only a replay has them.
                self.publish(publisher, engine, earlier + 20, lose=True)

                def same():
                    publisher.publish([])
                    prompts = [engine.prompt() for _ in range(20)]
                    return feed.stats()['state'] == 'whole' and all(
                        feed.match(p) == engine.cache.leading(p)
                        for p in prompts)
                harness.wait_until('the second life is known', same)
                self.assertSame(feed, engine)

    def test_a_shorter_life_than_before(self):
        """What a replay had of the second life comes live, too, and is no
        third one: every message counts once."""
        publisher, engine = self.publisher(), Engine(self.SEED, 4)
        feed = self.feed(publisher)
        self.join(publisher, feed)
        self.publish(publisher, engine, 20)
        feed.wait(messages=publisher.number)
        earlier = publisher.number
        publisher.stop()
        publisher.start()
        engine.cache.copies.clear()
        feed.wait(reconnects=1, entries=0, state='whole')
        self.publish(publisher, engine, 5)
        stats = feed.wait(messages=earlier + 5, state='whole')
        self.assertEqual((stats['restarts'], stats['lost']), (0, 0))
        self.assertSame(feed, engine)

    def test_strangers_at_our_address(self):
        """They speak no ZeroMQ: nothing was there, and nothing is lost."""
        publisher = self.publisher(connect=True)
        engine = Engine(self.SEED, 4)
        feed = self.feed(publisher, bind=True)
        self.join(publisher, feed)
        for _ in range(5):
            with socket.create_connection(('127.0.0.1', publisher.port)) as s:
                s.sendall(b'GET / HTTP/1.1\r\n\r\n')
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
        other = Publisher(publisher.port, connect=True)
        self.addCleanup(other.stop)
        self.publish(publisher, engine, 50)
        stats = feed.wait(messages=publisher.number, state='whole')
        self.assertEqual(stats['reconnects'], 0)
        self.assertSame(feed, engine)

    def test_a_cache_that_others_know_to_be_lost(self):
        publisher, engine = self.publisher(), Engine(self.SEED, 4)
        feed = self.feed(publisher)
        self.join(publisher, feed)
        self.publish(publisher, engine, 50)
        feed.wait(messages=publisher.number)
        self.assertEqual(feed.ask('forget'), 'done\n')
        feed.wait(messages=2 * publisher.number, state='whole')
        self.assertSame(feed, engine)

    def test_a_replay_that_is_not_answered(self):
        publisher, engine = self.publisher(), Engine(self.SEED, 4)
        publisher.answers_replay = False
        feed = self.feed(publisher)
        self.publish(publisher, engine, 10, lose=True)
        feed.wait(replays_failed=1)
        self.assertEqual(publisher.asked, [0, 0, 0])
        publisher.wait_subscribed()
        self.publish(publisher, engine, 10)
        publisher.publish([{'type': 'AllBlocksCleared'}])
        engine.cache.copies.clear()
        self.publish(publisher, engine, 10)
        feed.wait(messages=publisher.number - 10, state='partial')
        self.assertSame(feed, engine)

    def test_a_busy_engine_that_answers_again(self):
        """Live messages come before each answer: they stop neither the
        question whether it answers nor the replay of all."""
        publisher, engine = self.publisher(), Engine(self.SEED, 4)
        publisher.answers_replay = False
        feed = self.feed(publisher)
        self.publish(publisher, engine, 10, lose=True)
        feed.wait(replays_failed=1)
        publisher.wait_subscribed()
        publisher.publish([])
        feed.wait(state='partial')
        publisher.answers_replay, publisher.answers_behind = True, 3
        self.assertEqual(feed.ask('ask again'), 'done\n')

        def is_whole():
            publisher.publish([])
            return feed.stats()['state'] == 'whole'
        harness.wait_until('all has come again', is_whole)
        self.assertSame(feed, engine)

    def test_an_engine_that_has_said_nothing(self):
        """Asked for all, it has nothing: that is all there is."""
        feed = self.feed(self.publisher())
        feed.wait(messages=0, state='whole')

    def test_an_engine_that_starts_late(self):
        """Nobody answered, and yet nothing was lost: its live messages begin
        at 0."""
        held = engines.HeldPorts(self, 2)
        port = held.first
        feed = Feed(self, port, port + 1)
        feed.wait(replays_failed=1, state='silent')
        held.release()
        publisher, engine = Publisher(port, port + 1), Engine(self.SEED, 4)
        self.addCleanup(publisher.stop)
        publisher.answers_replay = False
        publisher.wait_subscribed()
        self.publish(publisher, engine, 20)
        feed.wait(messages=20, state='whole')
        self.assertSame(feed, engine)

    def test_lies(self):
        publisher, engine = self.publisher(), Engine(self.SEED, 4)
        feed = self.feed(publisher)
        self.join(publisher, feed)
        self.publish(publisher, engine, 50)
        prompt = engine.prompt()
        lies = [
            engine.stored(prompt, block_size=8),
            {**engine.stored(prompt), 'token_ids': [1]},
            {**engine.stored(prompt), 'token_ids': ['a'] * len(prompt)},
            {**engine.stored(prompt), 'medium': 'MOON'},
            {'type': 'BlockRemoved', 'block_hashes': [1, 2, 3]},
            {'type': 'BlockTransferred', 'block_hashes': 7},
            {**engine.stored(prompt), 'parent_block_hash': 77,
             'block_hashes': list(range(len(prompt) // 4))},
        ]
        publisher.publish(lies)
        stats = feed.wait(messages=publisher.number, wrong_size=1,
                          wrong_tokens=2, unknown_events=1, waited=1,
                          unknown_removed=3)
        self.assertEqual(stats['state'], 'whole')
        self.assertSame(feed, engine)

    def test_malformed_messages(self):
        publisher, engine = self.publisher(), Engine(self.SEED, 4)
        feed = self.feed(publisher)
        self.join(publisher, feed)
        bad = [b'', b'\xc1', b'\x93', b'\x92\x01\xdd\xff\xff\xff\xff',
               b'\x93\x01\x90', bytes(1000)]
        for payload in bad:
            publisher.publish(None, payload=payload)
        publisher.socket.send_multipart([b'one frame'])
        publisher.socket.send_multipart([b''] * 7)
        publisher.socket.send_multipart([b'', b'seq', b''])
        feed.wait(malformed=len(bad) + 3)
        publisher.publish([{'type': 'AllBlocksCleared'}])
        self.publish(publisher, engine, 50)
        prompt = engine.prompt()
        publisher.publish([engine.stored(prompt)])
        engine.cache.apply([engine.stored(prompt)])
        harness.wait_until('it goes on', lambda: feed.match(prompt) ==
                           engine.cache.leading(prompt))
        self.assertSame(feed, engine)

    def test_malformed_in_a_replay(self):
        """What it said is lost for good, although nothing is missing."""
        publisher, engine = self.publisher(), Engine(self.SEED, 4)
        publisher.publish([engine.stored(engine.prompt())], lose=True)
        publisher.publish(None, payload=b'\x93', lose=True)
        prompt = engine.prompt()
        publisher.publish([engine.stored(prompt)], lose=True)
        feed = self.feed(publisher)
        self.join(publisher, feed)
        feed.wait(malformed=1, state='partial')
        self.assertEqual(feed.match(prompt), len(prompt) // 4)

    BLOCKS = 20000
    # A message is taken in pieces of 512, and of 64 more at most; a turn of
    # the loop has a piece of one message, and begins with some others.
    MOST_BLOCKS = 4096

    def long_events(self, rng):
        """Stores many blocks, by one event and each by one of its own, and
        removes half of the first ones. Returns the events, and a prompt of
        which half is held."""
        hashes = rng.sample(range(2**40), self.BLOCKS)
        tokens = [rng.randrange(2**17) for _ in range(4 * self.BLOCKS)]
        stored = {'type': 'BlockStored', 'parent_block_hash': None,
                  'block_size': 4, 'medium': 'GPU'}
        return [
            {**stored, 'block_hashes': hashes, 'token_ids': tokens},
            {'type': 'BlockRemoved', 'medium': 'GPU',
             'block_hashes': hashes[:self.BLOCKS // 2 - 1:-1]},
            *({**stored, 'block_hashes': [rng.randrange(2**60)],
               'token_ids': [i] * 4} for i in range(self.BLOCKS // 4))
        ], tokens

    def assertTaken(self, feed, tokens, **wanted):
        stats = feed.wait(unfinished=0, state='whole', lost=0, **wanted)
        self.assertEqual(feed.match(tokens), self.BLOCKS // 2)
        self.assertLess(stats['most_blocks'], self.MOST_BLOCKS)

    def test_long_messages(self):
        """However they come, they are taken in pieces."""
        for way in 'live', 'replayed', 'held':
            with self.subTest(way):
                rng = random.Random(self.SEED)
                publisher = self.publisher()
                events, tokens = self.long_events(rng)
                if way == 'replayed':
                    publisher.publish(events)
                feed = self.feed(publisher)
                self.join(publisher, feed)
                if way == 'held':
                    publisher.publish([], lose=True)
                if way != 'replayed':
                    publisher.publish(events)
                publisher.publish([])
                self.assertTaken(feed, tokens, messages=publisher.number)

    def test_long_messages_hold_nobody_up(self):
        """Another engine's messages are taken in between."""
        publisher, rng = self.publisher(), random.Random(self.SEED)
        other = self.publisher(replay_port=None)
        feed = self.feed(publisher, other=other.port)
        self.join(publisher, feed)

        def between():
            publisher.publish(self.long_events(rng)[0])
            for i in range(200):
                other.publish([Engine(i, 4).stored([i] * 4)])
            return feed.stats()['between'] > 0
        harness.wait_until('one has come in between', between)

    def test_long_messages_that_are_forgotten(self):
        """The cache is known to be lost when some of a message was taken: it
        is told again, and counts once."""
        publisher, rng = self.publisher(), random.Random(self.SEED)
        feed = self.feed(publisher)
        self.join(publisher, feed)
        events, tokens = self.long_events(rng)
        publisher.publish(events)

        def in_part():
            self.assertEqual(feed.ask('forget'), 'done\n')
            return feed.stats()['forgot_parts'] > 0
        harness.wait_until('a part was forgotten', in_part)
        publisher.publish([])
        self.assertTaken(feed, tokens, held=self.BLOCKS // 4 * 3)

    def test_long_messages_of_one_that_ends(self):
        """The connection ends, or the engine is another, when some of a
        message was taken."""
        for bind in False, True:
            publisher, rng = self.publisher(connect=bind), random.Random(1)
            feed = self.feed(publisher, bind=bind)
            for life in range(8):
                self.join(publisher, feed)
                seen = feed.stats()['messages']
                publisher.publish(self.long_events(rng)[0])
                harness.wait_until('it has begun', lambda: (
                    lambda s: s['unfinished'] or s['messages'] > seen)(
                        feed.stats()))
                publisher.stop()
                publisher.start()
                events, tokens = self.long_events(rng)
                publisher.publish(events, lose=True)
                harness.wait_until(
                    f'life {life + 2} is known', lambda: (
                        publisher.publish([]) or
                        feed.stats()['held'] == self.BLOCKS // 4 * 3 and
                        feed.match(tokens) == self.BLOCKS // 2))

    @staticmethod
    def endless_events(times=10000):
        """Of an engine whose blocks are half of the index's: one goes and
        comes that begins 4,000 others, each time."""
        wide = 4000
        top = {'type': 'BlockStored', 'parent_block_hash': None,
               'block_size': 1, 'medium': 'GPU', 'block_hashes': [1],
               'token_ids': [1]}
        return [top, *({**top, 'parent_block_hash': 1,
                        'block_hashes': [2 + i], 'token_ids': [2 + i]}
                       for i in range(wide)),
                *([{'type': 'BlockRemoved', 'medium': 'GPU',
                    'block_hashes': [1]}, top] * times)]

    def test_a_message_that_takes_too_long(self):
        """It is dropped; after a rest the engine's messages count again."""
        publisher, other = self.publisher(), self.publisher(replay_port=None)
        feed = self.feed(publisher, block_tokens='2/1', other=other.port)
        self.join(publisher, feed)
        publisher.publish(self.endless_events())
        feed.wait(too_long=1, unfinished=0, held=0, state='partial')
        stored = Engine(self.SEED, 1).stored([5, 6, 7, 8])
        publisher.publish([stored])
        harness.wait_until('it is heard again',
                           lambda: feed.match([5, 6, 7, 8]) == 2)
        feed.wait(too_long=1, malformed=0)

    def test_many_messages_that_take_too_long(self):
        """More than may be unfinished: those that have had much are dropped,
        although each would end, and others are heard."""
        publisher = self.publisher(replay_port=None)
        other = self.publisher(replay_port=None)
        feed = self.feed(publisher, block_tokens='2/1', other=other.port,
                         copies=39)
        self.join(publisher, feed)

        publisher.publish(self.endless_events(2000))

        def dropped():
            other.publish([Engine(self.SEED, 1).stored([1, 2, 3, 4])])
            return feed.stats()['crowded_out'] > 0
        harness.wait_until('some are dropped', dropped)

    def test_salts_and_pages_of_one_token(self):
        publisher, engine = self.publisher(), Engine(self.SEED, 1)
        feed = self.feed(publisher, block_tokens=1)
        self.join(publisher, feed)
        self.publish(publisher, engine, 50)
        salted = [5, 6, 7]
        publisher.publish([{**engine.stored(salted), 'cache_salt': 'mine'}])
        publisher.publish([{**engine.stored([8, 9]),
                            'extra_keys': [['theirs'], None]}])
        feed.wait(messages=publisher.number)
        self.assertEqual(feed.match(salted), 0)
        self.assertEqual(feed.match(salted, 'mine'), 3)
        self.assertEqual(feed.match([8, 9], 'theirs'), 2)
        self.assertEqual(feed.match([8, 9]), 0)
        self.assertSame(feed, engine)


class Dynamo(engines.Case):
    """Dynamo's mocker: an engine that others wrote, with vLLM's events."""
    only_loopback = True

    def cached(self, mocker, tokens):
        status, reply = engines.get(
            mocker.url + '/v1/completions',
            {'model': engines.MODEL, 'prompt': tokens, 'max_tokens': 1})
        self.assertEqual(status, 200, reply)
        return reply['usage']['prompt_tokens_details']['cached_tokens']

    def test_hits_are_predicted(self):
        mocker = engines.Mocker(self, blocks=64)
        feed = Feed(self, mocker.events_port, mocker.replay_port,
                    block_tokens=16)
        rng = random.Random(4711)
        bases = [[rng.randrange(200) for _ in range(320)] for _ in range(5)]
        hits = 0
        for _ in range(80):
            base = rng.choice(bases)
            prompt = base[:rng.randrange(20, 321)] + \
                [rng.randrange(200) for _ in range(rng.randrange(1, 40))]
            # One request after the other: what it stores is known before the
            # next one.
            predicted = min(feed.match(prompt), (len(prompt) - 1) // 16)
            cached = self.cached(mocker, prompt)
            self.assertEqual(16 * predicted, cached)
            hits += cached > 0
            harness.wait_until('its blocks are known', lambda: feed.match(
                prompt) == len(prompt) // 16)
        self.assertGreater(hits, 20)
        stats = feed.stats()
        self.assertGreater(stats['removed'], 0)
        self.assertEqual((stats['lost'], stats['malformed'],
                          stats['unknown_removed'], stats['contradictions']),
                         (0, 0, 0, 0))
