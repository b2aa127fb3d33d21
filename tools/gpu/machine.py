"""The parts of a machine that tools/gpu-check needs: card, driver, tools."""
import glob
import os
import platform
import re
import shutil
import subprocess
import sys


def output(command, limit_s=30):
    """Standard output of a command, or None if it cannot run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def card():
    """Facts of the first card, or None: nvidia-smi is missing or sees none."""
    fields = ('name', 'driver_version', 'memory.total', 'compute_cap')
    text = output(['nvidia-smi', '--query-gpu=' + ','.join(fields),
                   '--format=csv,noheader'])
    lines = (text or '').strip().splitlines()
    if not lines:
        return None
    values = [value.strip() for value in lines[0].split(',')]
    return dict(zip(('name', 'driver', 'memory', 'compute'), values),
                cards=len(lines))


def commit(root):
    """Returns the commit of the source, and whether it was changed."""
    def git(*words):
        return (output(['git', '-C', root, *words]) or '').strip()

    head = git('rev-parse', '--short', 'HEAD')
    changed = ' with changes' if head and git('status', '--porcelain') else ''
    return f'commit {head}{changed}' if head else 'commit unknown'


def program(name, *places):
    """Path of a program on PATH or at one of the places, or None."""
    return shutil.which(name) or next(
        (place for place in places if os.access(place, os.X_OK)), None)


def nvcc_version(nvcc):
    lines = (output([nvcc, '--version']) or '').splitlines()
    release = [line for line in lines if 'release' in line]
    return release[0].split('release', 1)[1].split(',')[0].strip() \
        if release else 'unknown'


def processor():
    try:
        with open('/proc/cpuinfo', encoding='utf-8') as f:
            found = re.search(r'^model name.*?:(.*)', f.read(), re.M)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or 'unknown'


def python_tool(name, module):
    """Returns the command of a tool that may be a Python module only."""
    path = program(name, os.path.join(os.path.dirname(sys.executable), name))
    if path:
        return [path]
    return [sys.executable, '-m', module] \
        if output([sys.executable, '-c', f'import {module}']) is not None \
        else None


def look():
    """Returns all facts of the machine as one dict."""
    nvcc = program('nvcc', '/usr/local/cuda/bin/nvcc')
    beside = os.path.dirname(nvcc) if nvcc else '/usr/local/cuda/bin'
    return {
        'card': card(),
        'nvcc': nvcc,
        'cuda': nvcc_version(nvcc) if nvcc else None,
        'sanitizer': program('compute-sanitizer',
                             os.path.join(beside, 'compute-sanitizer')),
        'compiler': program('cc') or program('gcc'),
        'host_compiler': program('g++'),
        'meson': python_tool('meson', 'mesonbuild.mesonmain'),
        'ninja': program('ninja', os.path.join(
            os.path.dirname(sys.executable), 'ninja')),
        'processor': f'{os.cpu_count()} x {processor()}',
    }


def toolkit_from_python(nvcc, folder):
    """Returns the environment with which compilers and programs find cuBLAS
    among Python's packages, as wheels install it, with links in `folder` for
    the names that linking needs. {} if it is beside nvcc."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    if os.path.exists(os.path.join(root, 'include', 'cublas_v2.h')):
        return {}
    headers = [found for place in sys.path for found in glob.glob(
        os.path.join(place, 'nvidia', '*', 'include', 'cublas_v2.h'))]
    if not headers:
        return {}
    base = os.path.dirname(os.path.dirname(headers[0]))
    os.makedirs(folder, exist_ok=True)
    for path in glob.glob(os.path.join(os.path.dirname(base), '*', 'lib',
                                       'lib*.so.*')):
        name = os.path.basename(path)
        for link in (name.split('.so')[0] + '.so', name):
            if not os.path.lexists(os.path.join(folder, link)):
                os.symlink(path, os.path.join(folder, link))

    def put(name, *values):
        old = os.environ.get(name)
        return {name: os.pathsep.join(values + ((old,) if old else ()))}

    return {**put('CPATH', os.path.dirname(headers[0])),
            **put('LIBRARY_PATH', folder), **put('LD_LIBRARY_PATH', folder)}
