"""Conductors over the model of Redis of tests/world."""
import test_conductors
from harness import wait_until
from redis_server import RedisModel
from test_conductors import PROMPT, OverRedis


class OverModel(OverRedis):
    """Cases of a real server hold over the model, too."""

    def begin(self, n=2, **options):
        return super().begin(n, redis=RedisModel(self), **options)

    test_full = test_conductors.Shared.test_redis_full
    test_other_values = test_conductors.Shared.test_other_values
    test_evicted_registry = test_conductors.Shared.test_evicted_registry

    def test_take_over(self):
        """A replica that lacks all that was written takes over: connections
        end, scripts are unknown, and all is told anew."""
        a, b = self.begin()
        answer = a.api.hold(PROMPT)
        self.wait_foreign(b, 1)
        leases = self.metric(b, 'state_leases_total')
        self.redis.fault('fail-over', 1000)
        wait_until('b has another lease', lambda: self.metric(
            b, 'state_leases_total') > leases)
        self.wait_foreign(b, 1)
        wait_until('both believe the same', lambda: self.bookings(a) ==
                   self.bookings(b) != set())
        answer.end()
        self.wait_foreign(b, 0)
