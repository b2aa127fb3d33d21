#!/usr/bin/env python3
"""Does what docs/internals/add-a-policy.md says: writes the page's policy and the table
with the page's line.

usage: page_policy.py PAGE TABLE.c OUT_POLICY.c OUT_TABLE.c
"""
import re
import sys


def main():
    page, table, out_policy, out_table = sys.argv[1:]
    with open(page, encoding='utf-8') as f:
        policy, line = re.findall(r'^```c\n(.*?)^```$', f.read(),
                                  re.MULTILINE | re.DOTALL)
    with open(table, encoding='utf-8') as f:
        entries = f.read()
    last = re.findall(r'^    POLICY\(\w+\)$', entries, re.MULTILINE)[-1]
    whole = entries.replace(last + '\n', f'{last} \\\n{line}')
    if whole == entries:
        sys.exit(f'{table}: no entry behind which a policy could be added')
    for path, text in (out_policy, policy), (out_table, whole):
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)


if __name__ == '__main__':
    main()
