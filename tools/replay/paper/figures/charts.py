"""Draws charts side by side as SVG with gnuplot."""

import math
import subprocess

COLOURS = ['#1f6fb4', '#d95f02', '#1b9e77', '#a6357f', '#7f7f7f', '#b8860b',
           '#4b3f9e', '#c8372d']
LEFT, FRAME, GAP, KEY = 80, 450, 100, 170  # pixels


class Chart:
    """One frame. lines: (name, [y]) over x, or bars over `groups`. `log` names
    logarithmic axes; `key`: show the names beside the frame."""

    def __init__(self, title, x_label, y_label, x, lines, *, groups=None,
                 log='', y_max=None, marks=True, key=True):
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.x, self.lines, self.groups, self.log = x, lines, groups, log
        self.y_max, self.marks = y_max, marks
        self.key = key and lines[0][0] is not None


def bars(title, y_label, groups, y):
    return Chart(title, '', y_label, range(len(y)), [(None, y)], groups=groups)


def quote(text):
    return '"' + text.replace('\\', '\\\\').replace('"', '\\"') + '"'


def script(title, charts):
    width = sum(FRAME + (KEY if c.key else 0) for c in charts) + LEFT
    left = LEFT
    yield (f'set terminal svg noenhanced size {width},370 font '
           "'sans-serif,12' background 'white' name 'chart'\n"
           'set encoding utf8\nset tics nomirror scale 0.6\n'
           "set grid lc '#dddddd' lw 0.5\nset style fill solid 0.8\n"
           'set tmargin at screen 0.8\nset bmargin at screen 0.16\n'
           f'set multiplot title {quote(title)}\n')
    for c in charts:
        y_max = max([y for _, ys in c.lines for y in ys
                     if math.isfinite(y)] + [1e-6])
        top = max(c.y_max or 0, y_max * (1.15 if c.groups else 1.05))
        yield ('unset logscale\nset xtics auto\nset autoscale\n'
               f'set lmargin at screen {left / width}\n'
               f'set rmargin at screen {(left + FRAME - GAP) / width}\n'
               f'set title {quote(c.title)}\nset xlabel {quote(c.x_label)}\n'
               f'set ylabel {quote(c.y_label)}\n')
        left += FRAME + (KEY if c.key else 0)
        yield ('set key outside right top Left reverse\n' if c.key else
               'unset key\n')
        yield f'set logscale {c.log}\n' if c.log else ''
        yield '' if 'y' in c.log else f'set yrange [0:{top:.9g}]\n'
        for i, (_, ys) in enumerate(c.lines):
            points = [f'{x:.9g} {y:.9g}\n' for x, y in zip(c.x, ys)
                      if math.isfinite(y) and ('y' not in c.log or y > 0)]
            yield f'$d{i} << END\n{"".join(points) or "0 NaN"}\nEND\n'
        if c.groups:
            names = ', '.join(f'{quote(g)} {i}' for i, g in
                              enumerate(c.groups))
            yield (f'set xrange [-0.6:{len(c.groups) - 0.4}]\n'
                   f'set boxwidth 0.7\nset xtics ({names})\n'
                   f"plot $d0 with boxes lc '{COLOURS[0]}' notitle, $d0 using "
                   "1:2:(sprintf('%.3g', $2)) with labels offset 0,0.6 "
                   'notitle\n')
            continue
        style = 'linespoints ps 0.5 pt 7' if c.marks else 'lines'
        yield 'plot ' + ', '.join(
            f"$d{i} with {style} lc '{COLOURS[i % 8]}' dt {i % 5 + 1} title "
            f'{quote(name or "")}'
            for i, (name, _) in enumerate(c.lines)) + '\n'
    yield 'unset multiplot\n'


def draw(path, title, charts):
    """Draws the charts. Returns None, or the error."""
    text = ''.join(script(title, charts))
    try:
        done = subprocess.run(['gnuplot', '-d'], input=text.encode(),
                              stdout=subprocess.PIPE, check=False)
    except FileNotFoundError:
        return ('not drawn, gnuplot is missing: install Debian\'s '
                'gnuplot-nox')
    if done.returncode != 0:
        return 'not drawn, gnuplot failed'
    with open(path, 'wb') as f:
        f.write(done.stdout)
    return None
