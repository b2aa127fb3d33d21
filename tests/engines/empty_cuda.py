"""Makes empty libraries in place of CUDA's that the toolkit lacks and that a
process on a CPU never calls: every function that torch wants of them returns
1.

usage: empty_cuda.py FOLDER_OF_TORCHS_LIBRARIES
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

LIBRARIES = {'libcusparseLt.so.0': 'cusparseLt',
             'libnvshmem_host.so.3': 'p?nvshmem',
             'libcufile.so.0': 'cuFile',
             'libnccl.so.2': 'p?nccl'}


def wanted(folder):
    """{(name, version)} of what torch takes from other libraries."""
    found = set()
    for file in os.listdir(folder):
        if file.startswith(('libtorch', 'libc10', 'libcaffe2')):
            lines = subprocess.run(
                ['nm', '-D', '--undefined-only', os.path.join(folder, file)],
                check=True, capture_output=True, text=True).stdout
            for line in lines.splitlines():
                name, _, version = line.split()[-1].partition('@')
                found.add((name, version.lstrip('@')))
    return found


def make(path, symbols):
    versions = collections.defaultdict(list)
    for name, version in sorted(symbols):
        if version:
            versions[version].append(name)
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, 'empty.c')
        script = os.path.join(folder, 'versions')
        with open(source, 'w', encoding='utf-8') as out:
            out.writelines(f'int {name}(void) {{ return 1; }}\n'
                           for name, _ in sorted(symbols))
        with open(script, 'w', encoding='utf-8') as out:
            out.writelines(f'{v} {{ global: {"; ".join(names)}; }};\n'
                           for v, names in versions.items())
        subprocess.run(
            ['gcc', '-w', '-shared', '-fPIC', '-o', path,
             '-Wl,-soname,' + os.path.basename(path), source,
             *(['-Wl,--version-script=' + script] if versions else [])],
            check=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    symbols = wanted(sys.argv[1])
    for library, pattern in LIBRARIES.items():
        make(os.path.join(sys.argv[1], library),
             {s for s in symbols if re.match(pattern, s[0])})


if __name__ == '__main__':
    main()
