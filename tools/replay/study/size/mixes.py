"""Which mixes of nodes are tried, and the search for the cheapest one. Pure.

A mix is a tuple of counts, one for each dimension: a kind of node in a role.
"""
from random import Random

# Most mixes that cost no more than a known answer.
MIXES_MAX = 400_000
# Mixes that the search left out and that are simulated all the same.
CHECKS = 40


class TooMany(Exception):
    """More than MIXES_MAX mixes would have to be looked at."""


class Space:
    """dims: (kind, role, price) each, role 0 = prefill (or coupled), 1 =
    decode; prices are whole numbers. most: nodes of each role; decode 0 =
    there are no decode nodes."""

    def __init__(self, dims, most):
        self.dims, self.most = dims, most
        self.roles = [0, 1] if most[1] else [0]

    def price(self, mix):
        return sum(n * price for n, (_, _, price) in zip(mix, self.dims))

    def nodes(self, mix, role):
        return sum(n for n, dim in zip(mix, self.dims) if dim[1] == role)

    def fits(self, mix):
        return all(1 <= self.nodes(mix, r) <= self.most[r]
                   for r in self.roles)

    def mixes(self, dims, price_max=None):
        """Returns all mixes of these dimensions (indexes), the cheapest first,
        then those of fewer nodes, then of fewer in the first dimensions."""
        found = []

        def extend(mix, left, price):
            if not left:
                if self.fits(mix):
                    found.append((price, sum(mix), mix))
                if len(found) > MIXES_MAX:
                    raise TooMany
                return
            i, *rest = left
            n = 0
            while (price_max is None or price <= price_max) and (
                    n <= self.most[self.dims[i][1]]):
                extend(mix[:i] + (n,) + mix[i + 1:], rest, price)
                n, price = n + 1, price + self.dims[i][2]

        extend((0,) * len(self.dims), list(dims), 0)
        return [mix for _, _, mix in sorted(found)]

    def without_one(self, mix):
        """Returns the mixes of a node fewer, also those that serve nobody."""
        return [mix[:i] + (n - 1,) + mix[i + 1:]
                for i, n in enumerate(mix) if n > 0]


def is_within(mix, other):
    return all(a <= b for a, b in zip(mix, other))


class Search:
    """The cheapest mix that meets the target; of equal prices the one of the
    highest share, then of the fewest prefill nodes.

    ask(mixes) returns for each whether it meets the target, and its share.
    With `everything` every mix is asked for, from the cheapest up. Otherwise a
    mix is left out if one that has at least as many nodes in every dimension
    does not meet the target; some of those left out are then asked for, to
    see whether that was right (`checked`, `contradicted`).
    """

    def __init__(self, space, ask, everything, at_once=4):
        self.space, self.ask, self.at_once = space, ask, at_once
        self.answers = {}  # mix: (meets, share)
        self.failed, self.bound = [], None
        self.checked, self.contradicted = 0, 0
        self.everything = everything

    def ask_for(self, mixes):
        new = [m for m in dict.fromkeys(mixes) if m not in self.answers]
        for mix, answer in zip(new, self.ask(new) if new else ()):
            self.answers[mix] = answer
            if answer[0]:
                price = self.space.price(mix)
                self.bound = min(price, self.bound or price)
            else:
                self.failed.append(mix)

    def best(self):
        """Returns the answer so far, or None."""
        price = self.space.price
        meeting = [m for m, (meets, _) in self.answers.items() if meets]
        return min(meeting, default=None, key=lambda m: (
            price(m), -self.answers[m][1], self.space.nodes(m, 0), m))

    def is_open(self, mix, failed):
        return (mix not in self.answers and
                (self.bound is None or self.space.price(mix) <= self.bound) and
                not any(is_within(mix, f) for f in failed))

    def lift(self, mix, dims):
        """Returns a mix of more nodes, half way to the price of the best: if
        it does not meet the target, no mix within it does."""
        price = self.space.price(mix)
        most = price * 2 if self.bound is None else (price + self.bound) // 2
        grows = True
        while grows:
            grows = False
            for i in dims:
                more = mix[:i] + (mix[i] + 1,) + mix[i + 1:]
                if self.space.fits(more) and self.space.price(more) <= most:
                    mix, grows = more, True
        return mix

    def narrow(self, dims, mixes):
        """Asks until no mix of these is open."""
        mixes = [m for m in mixes if self.is_open(m, self.failed)]
        while mixes:
            seen, probes = len(self.failed), []
            at_once = self.at_once if self.bound is not None else 1
            for mix in mixes:
                if not any(is_within(mix, p) for p in probes):
                    probes.append(self.lift(mix, dims))
                if len(probes) == at_once:
                    break
            self.ask_for(probes)
            mixes = [m for m in mixes if self.is_open(m, self.failed[seen:])]

    def check(self, mixes):
        """Asks for some of the mixes that were left out: half of them the
        dearest, half of them any."""
        left = [m for m in mixes if m not in self.answers]
        some = left[-CHECKS // 2:]
        others = left[:-CHECKS // 2]
        some += Random(1).sample(others, min(CHECKS // 2, len(others)))
        self.ask_for(some)
        self.checked = len(some)
        self.contradicted = sum(self.answers[m][0] for m in some)

    def try_all(self):
        mixes = self.space.mixes(range(len(self.space.dims)))
        while mixes and self.bound is None:
            price = self.space.price(mixes[0])
            some = [m for m in mixes if self.space.price(m) == price]
            self.ask_for(some)
            mixes = mixes[len(some):]

    def run(self):
        """Returns the best mix, or None."""
        space = self.space
        every = range(len(space.dims))
        if self.everything:
            self.try_all()
            return self.best()
        # One kind in each role first: their best price bounds the others.
        firsts = [[i for i in every if space.dims[i][1] == r]
                  for r in space.roles]
        for dims in ([(i,) for i in firsts[0]] if len(firsts) == 1 else
                     [(i, j) for i in firsts[0] for j in firsts[1]]):
            self.narrow(dims, space.mixes(dims, self.bound))
        mixes = space.mixes(every, self.bound)
        self.narrow(every, mixes)
        self.check([m for m in mixes if space.price(m) <= self.bound]
                   if self.bound is not None else mixes)
        return self.best()


class Spare:
    """Answers a Search for a mix that meets the target with any one node
    lost, by the answers of another search."""

    def __init__(self, search):
        self.search = search

    def ask(self, mixes):
        space, search = self.search.space, self.search
        search.ask_for(mixes)
        search.ask_for([x for m in mixes if search.answers[m][0]
                        for x in space.without_one(m) if space.fits(x)])

        def meets(mix):
            return space.fits(mix) and search.answers[mix][0]
        return [(meets(m) and all(map(meets, space.without_one(m))),
                 search.answers[m][1]) for m in mixes]
