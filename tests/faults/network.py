"""Networks that are cut, silent, slow, or spoil what they carry; between a
worker and its conductor, and between workers."""
import contextlib
import time

from proxy import Proxy
from scene import fault

PART = 'network'


def behind_proxies(s, role='prefill', others=None, name='x0', **options):
    """A worker whose conductor and whose peers are behind a proxy each;
    returns both."""
    s.native(**(others or {'prefill': 1, 'decode': 2}))
    have = s.town.api.instances()
    peers = Proxy(0)
    link = Proxy(s.town.ports['worker'], peers)
    for proxy in link, peers:
        s.cleanup(proxy.close)
    ports = s.town.ports
    s.town.ports = {**ports, 'worker': link.port}
    try:
        s.town.start_worker(name, role, transports='tcp', **options)
    finally:
        s.town.ports = ports
    s.town.wait_ready(have[0] + (role == 'prefill'),
                      have[1] + (role == 'decode'))
    return link, peers


@contextlib.contextmanager
def bad(proxy, *how):
    proxy.set(*how)
    try:
        yield
    finally:
        proxy.set('pass')


@fault(PART, 'the connection of a prefill worker to the conductor is reset')
def link_cut(s):
    link, _ = behind_proxies(s)
    s.load()
    s.until_busy('x0')
    with s.hits('x0'), bad(link, 'cut'):
        s.until_gone('x0')
        s.more()
    s.town.wait_ready(2, 2)


@fault(PART, 'the connection of a decode worker to the conductor is reset')
def decode_link_cut(s):
    link, _ = behind_proxies(s, 'decode', {'prefill': 2, 'decode': 0,
                                                 'both': 1})
    s.load()
    s.until_busy('x0', 'decodes')
    with s.hits('x0'), bad(link, 'cut'):
        s.until_gone('x0')
        s.more()
    s.town.wait_ready(3, 2)


@fault(PART, 'nothing passes between a worker and the conductor (half open), '
             'and then it does again')
def link_silent(s):
    link, _ = behind_proxies(s)
    s.load()
    s.until_busy('x0')
    with s.hits('x0'), bad(link, 'silent'):
        s.until_gone('x0')
        s.more()
    s.town.wait_ready(2, 2)


@fault(PART, 'a slow connection to the conductor, 20 KB/s')
def link_slow(s):
    link, _ = behind_proxies(s)
    s.load()
    with s.hits('x0'), bad(link, 'slow', 20000):
        time.sleep(3)
        s.more()
    s.more()
    s.until('x0 is well', lambda: s.town.api.instances() == (2, 2))


@fault(PART, 'frames to a worker are spoilt on their way')
def link_spoilt(s):
    link, _ = behind_proxies(s)
    s.load()
    with s.hits('x0'):
        # A frame's head: the connection ends. Prompts have no checksum, as
        # TCP has one; here the head of the next frame is not one.
        link.treat, treat = lambda data: b'\xff' * len(data), link.treat
        s.until_gone('x0')
        link.treat = treat
        s.more()
    s.town.wait_ready(2, 2)


@fault(PART, 'the connections between workers are reset as KV passes')
def peers_cut(s):
    _, peers = behind_proxies(s)
    s.load()
    with s.hits('x0'):
        for _ in range(3):
            with bad(peers, 'cut'):
                s.more(3)
            s.more(3)
    s.more()


@fault(PART, 'nothing passes between workers, and then it does again')
def peers_silent(s):
    _, peers = behind_proxies(s)
    s.load()
    with s.hits('x0'), bad(peers, 'silent'):
        s.more(20)
    s.more()


@fault(PART, 'a decode worker cannot be reached by its peers', refused=True)
def decode_unreachable(s):
    _, peers = behind_proxies(s, 'decode', {'prefill': 2, 'decode': 1})
    with s.hits('x0'), bad(peers, 'cut'):
        s.load()
        s.more(20)
    s.more()
