"""Prints how many prefill and decode instances a conductor has ready."""
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends without a traceback

import json  # noqa: E402
import sys  # noqa: E402
import urllib.request  # noqa: E402

try:
    with urllib.request.urlopen(f'http://127.0.0.1:{sys.argv[1]}/health',
                                timeout=2) as reply:
        have = json.load(reply)['instances']
    print(have['prefill'], have['decode'])
except (OSError, ValueError, KeyError) as error:
    sys.exit(f'no health: {error}')
