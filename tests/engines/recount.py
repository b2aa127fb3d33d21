"""What an engine held, recounted from the KV events that it sent, with none of
Conductor's code: at each moment, and as somebody knows it who has heard a part
of them."""
import bisect

NAMES = {}  # (name of the blocks before, tokens): a block's name


def chain_of(tokens, block_tokens):
    """The names of a prompt's whole blocks."""
    chain, before = [], None
    for at in range(0, len(tokens) - block_tokens + 1, block_tokens):
        before = NAMES.setdefault(
            (before, tuple(tokens[at:at + block_tokens])), len(NAMES))
        chain.append(before)
    return chain


class Recount:
    """Messages of one life, from the first of them that is known on. Moments
    are counted in events: moment 3 is behind the third one."""

    def __init__(self, block_tokens, first=0):
        self.block_tokens, self.first = block_tokens, first
        self.copies = {}   # hash: so many
        self.name_of = {}  # hash: its block's name
        self.waiting = {}  # parent: [(hashes, tokens)], it has no name yet
        self.spans = {}    # name: [moment from which, moment until which, ..]
        self.hashes_of = {}  # name: hashes that are held
        self.sent_s = []   # of each event
        self.ends = []     # of each message: the moment behind it

    def take(self, sent_s, events):
        """The next message."""
        for event in events:
            self.sent_s.append(sent_s)
            kind = event['type']
            if kind == 'BlockStored':
                self.stored(event)
            elif kind == 'BlockRemoved':
                for h in event['block_hashes']:
                    self.removed(h)
            else:
                assert kind == 'AllBlocksCleared', event
                for h in list(self.copies):
                    self.copies[h] = 1
                    self.removed(h)
        self.ends.append(len(self.sent_s))

    def stored(self, event):
        hashes, parent = event['block_hashes'], event['parent_block_hash']
        for h in hashes:
            self.copies[h] = self.copies.get(h, 0) + 1
        if parent is None or parent in self.name_of:
            self.learn(self.name_of.get(parent), hashes, event['token_ids'])
        else:
            self.waiting.setdefault(parent, []).append(
                (hashes, event['token_ids']))
        for h in hashes:
            if h in self.name_of and self.copies[h] == 1:
                self.begin(h)

    def learn(self, before, hashes, tokens):
        size = self.block_tokens
        for i, h in enumerate(hashes):
            before = NAMES.setdefault(
                (before, tuple(tokens[i * size:(i + 1) * size])), len(NAMES))
            if self.name_of.setdefault(h, before) != before:
                raise AssertionError(f'hash {h} has two contents')
            for waits in self.waiting.pop(h, []):
                self.learn(before, *waits)
                for other in waits[0]:
                    if self.copies.get(other):
                        self.begin(other)

    def begin(self, h):
        held = self.hashes_of.setdefault(self.name_of[h], set())
        if not held:
            self.spans.setdefault(self.name_of[h], []).append(
                len(self.sent_s))
        held.add(h)

    def removed(self, h):
        if self.copies.get(h, 0) > 1:
            self.copies[h] -= 1
            return
        if self.copies.pop(h, None) is None or h not in self.name_of:
            return
        held = self.hashes_of[self.name_of[h]]
        held.discard(h)
        if not held:
            self.spans[self.name_of[h]].append(len(self.sent_s))

    def held(self):
        """How many different blocks, now."""
        return sum(map(bool, self.hashes_of.values()))

    def holds(self, name, moment):
        return bisect.bisect_right(self.spans.get(name, ()), moment) % 2

    def leading(self, chain, moment):
        """How many leading blocks of a chain were there."""
        return next((i for i, name in enumerate(chain)
                     if not self.holds(name, moment)), len(chain))

    def behind(self, number):
        """The moment behind the message of that number; 0: before all."""
        return self.ends[number - self.first] if number >= self.first else 0

    def until(self, time_s):
        """The last moment that was sent by then."""
        return bisect.bisect_right(self.sent_s, time_s)

    def ever(self, chain, since, until):
        """All numbers of leading blocks between two moments."""
        moments = {since}
        for name in chain:
            spans = self.spans.get(name, ())
            moments.update(spans[bisect.bisect_left(spans, since):
                                 bisect.bisect_right(spans, until)])
        return {self.leading(chain, m) for m in moments}
