"""Prints how many prefill and decode instances a conductor has ready."""
import json
import sys
import urllib.request

try:
    with urllib.request.urlopen(f'http://127.0.0.1:{sys.argv[1]}/health',
                                timeout=2) as reply:
        have = json.load(reply)['instances']
    print(have['prefill'], have['decode'])
except (OSError, ValueError, KeyError) as error:
    sys.exit(f'no health: {error}')
