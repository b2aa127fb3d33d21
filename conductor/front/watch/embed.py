#!/usr/bin/env python3
"""Makes one page of its markup, style and script, and a C file of the page.

The page's policy names the style and the script by their hashes: a browser runs
nothing else, whatever gets into the page.

usage: embed.py page.html page.css page.js OUT.c
"""
import base64
import hashlib
import sys


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def source_hash(text):
    digest = hashlib.sha256(text.encode()).digest()
    return "'sha256-" + base64.b64encode(digest).decode() + "'"


def main():
    html, css, js = (read(path) for path in sys.argv[1:4])
    for text, mark in (css, '/* page.css */'), (js, '/* page.js */'):
        if html.count(mark) != 1 or '</' in text:
            sys.exit(f'{sys.argv[1]}: must have {mark} once, and that no "</"')
        html = html.replace(mark, text)
    policy = ("default-src 'none'; connect-src 'self'; "
              f"style-src {source_hash(css)}; script-src {source_hash(js)}; "
              "img-src data:; base-uri 'none'; form-action 'none'; "
              "frame-ancestors 'none'")
    data = html.encode("ascii")
    rows = [', '.join(str(byte) for byte in data[i:i + 20])
            for i in range(0, len(data), 20)]
    with open(sys.argv[4], 'w', encoding='utf-8') as f:
        f.write('#include "conductor/front/watch/watch.h"\n\n'
                'const char page_html[] = {' + ',\n'.join(rows) + '};\n'
                'const size_t page_bytes = sizeof(page_html);\n'
                f'const char page_policy[] = "{policy}";\n')


main()
