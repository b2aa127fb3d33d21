"""Charts side by side as SVG, drawn by matplotlib.

The caller gives numbers and names; this file chooses ranges, ticks, colours,
dashes and keys. The same data and the same matplotlib give the same bytes.
"""
import math
import os
import sys

try:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter, MaxNLocator
except ImportError:
    # Another python3 may stand in front of Debian's, which has the package.
    DEBIAN = '/usr/bin/python3'
    if sys.executable != DEBIAN and os.path.exists(DEBIAN):
        os.execv(DEBIAN, [DEBIAN, '-B', *sys.argv])
    matplotlib = LogFormatter = None

# Colours that the colour-blind can distinguish; dashes differ, too.
COLOURS = ['#1f6fb4', '#d95f02', '#1b9e77', '#a6357f', '#7f7f7f', '#b8860b',
           '#4b3f9e', '#c8372d']
DASHES = ['-', '--', '-.', ':', (0, (5, 1, 1, 1, 1, 1))]
MARKS = 'os^vDp'
RULE = {'color': '#777777', 'linewidth': 1}
# How a series is drawn: a line with points; a line for many points; a curve
# whose y changes at each x; separate points; crosses; crosses above the scale.
LINE, CURVE, STAIRS, DOTS, CROSSES, ABOVE = range(6)
WIDTH, HEIGHT, BAR, LETTER = 4.4, 3.4, 0.42, 0.09  # inches


class PlainNumbers(LogFormatter or object):
    """Labels the ticks that matplotlib would label, with 10 in place of 10^1,
    which it only shows where texts may hold formulas."""

    def __call__(self, x, pos=None):
        return f'{x:g}' if super().__call__(x, pos) else ''


class Chart:
    """One frame. lines: (name, [y][, mark[, [x]]]) over x, or bars over
    `groups`; a name of None is not in the key. rules: (name, axis, value), a
    limit or mean that is dashed at the value of 'x' or 'y', or at y = value * x
    for 'xy'. `log` names logarithmic axes. `square`: equal axes, for predicted
    over observed. `whole`: x counts things, with `square` y, too. `y_range`:
    the least range of y; `key`: show the names beside the frame. bands: (i,
    [low], [high]), an area around line i."""

    def __init__(self, title, x_label, y_label, x, lines, *, groups=None,
                 log='', y_range=(), rules=(), mark=LINE, square=False,
                 whole=False, key=True, bands=()):
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.groups, self.log, self.y_range, self.rules = (groups, log,
                                                           y_range, rules)
        self.square, self.whole, self.bands = square, whole, bands
        self.lines = [(name, ys, *more[:1], *more[1:]) if len(more) == 2 else
                      (name, ys, more[0] if more else mark, x)
                      for name, ys, *more in lines]
        self.key = [clean(name) for name, *_ in [*self.lines, *rules]
                    if name] if key else []

    def width(self):
        bars = sum(len(ys) for _, ys, *_ in self.lines) if self.groups else 0
        key = 0.7 + LETTER * max(map(len, self.key)) if self.key else 0
        frame = max(HEIGHT if self.square else WIDTH, 1 + BAR * bars)
        return max(frame + key, 1 + LETTER * len(self.title))


def bars(title, y_label, groups, y):
    return Chart(title, '', y_label, range(len(y)), [(None, y)], groups=groups)


def clean(text):
    """Returns text that matplotlib shows as it is: with a leading _ it would
    leave a name out of the key."""
    text = ''.join(c if c.isprintable() else ' ' for c in text)
    return f' {text}' if text.startswith('_') else text


def is_shown(chart, x, y):
    return (math.isfinite(x) and math.isfinite(y) and
            not ('x' in chart.log and x <= 0) and
            not ('y' in chart.log and y <= 0))


def put_bars(ax, chart):
    width = 0.8 / len(chart.lines)
    for i, (name, ys, _, _) in enumerate(chart.lines):
        at = [g + width * (i - (len(chart.lines) - 1) / 2)
              for g in range(len(ys))]
        drawn = ax.bar(at, ys, 0.92 * width, color=COLOURS[i % len(COLOURS)],
                       alpha=0.85, label=clean(name or ''))
        ax.bar_label(drawn, ['' if math.isnan(y) else f'{y:.0f}'
                             if abs(y) >= 100 else f'{y:.3g}' for y in ys],
                     fontsize=7)
    ax.set_xticks(range(len(chart.groups)), map(clean, chart.groups))
    ax.margins(y=0.12)


def put_line(ax, chart, i):
    """Draws a series. Returns the points that the axes must show."""
    name, ys, mark, xs = chart.lines[i]
    if mark == ABOVE:
        points, place = [(x, 1) for x in xs], ax.get_xaxis_transform()
    else:
        points = [p for p in zip(xs, ys) if is_shown(chart, *p)]
        place = ax.transData
    style = {'color': COLOURS[i % len(COLOURS)], 'markersize': 4,
             'label': clean(name or ''), 'transform': place}
    if mark in (LINE, CURVE, STAIRS):
        style['linestyle'] = DASHES[i % len(DASHES)]
    else:
        style['linestyle'] = 'none'
    if mark in (LINE, DOTS):
        style['marker'] = MARKS[i % len(MARKS)]
    elif mark in (CROSSES, ABOVE):
        style |= {'marker': 'x', 'clip_on': mark != ABOVE, 'markersize': 6}
    if mark == STAIRS:
        style['drawstyle'] = 'steps-post'
    ax.plot(*zip(*points or [(math.nan, math.nan)]), **style)
    return [] if mark == ABOVE else points


def put_bands(ax, chart):
    """Draws the areas. Returns the points that the axes must show."""
    points = []
    for i, lows, highs in chart.bands:
        shown = [(x, low, high)
                 for x, low, high in zip(chart.lines[i][3], lows, highs)
                 if is_shown(chart, x, low) and is_shown(chart, x, high)]
        if shown:
            ax.fill_between(*zip(*shown), color=COLOURS[i % len(COLOURS)],
                            alpha=0.2, linewidth=0)
        points += [(x, y) for x, *ends in shown for y in ends]
    return points


def put_rules(ax, chart):
    for i, (name, axis, value) in enumerate(chart.rules):
        style = RULE | {'label': clean(name or ''),
                        'linestyle': DASHES[i % 3 + 1]}
        if axis == 'xy':
            ends = ax.get_xlim()
            ax.plot(ends, [value * x for x in ends], scalex=False,
                    scaley=False, **style)
        else:
            (ax.axvline if axis == 'x' else ax.axhline)(value, **style)


def put_ranges(ax, chart, points):
    if chart.square and points:
        low, high = min(map(min, points)), max(map(max, points))
        ends = ((low - 1, high + 1) if chart.whole else
                (low / 1.3, high * 1.3) if chart.log else
                (low, high + (high == low)))
        ax.set(xlim=ends, ylim=ends, box_aspect=1)
    elif chart.y_range:
        ax.update_datalim([(points[0][0] if points else 1, y)
                           for y in chart.y_range])
        ax.autoscale_view()
    if chart.whole:
        for axis in [ax.xaxis, ax.yaxis][:1 + chart.square]:
            axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def put_chart(ax, chart):
    for name, axis in (('x', ax.xaxis), ('y', ax.yaxis)):
        if name in chart.log:
            getattr(ax, f'set_{name}scale')('log')
            axis.set_major_formatter(PlainNumbers())
            axis.set_minor_formatter(PlainNumbers(
                labelOnlyBase=False, minor_thresholds=(1, 0.5)))
    if chart.groups:
        put_bars(ax, chart)
    else:
        put_ranges(ax, chart, put_bands(ax, chart) + [
            point for i in range(len(chart.lines))
            for point in put_line(ax, chart, i)])
        put_rules(ax, chart)
    if not chart.square and 'y' not in chart.log:
        ax.set_ylim(bottom=0)
    ax.set_title(clean(chart.title), loc='left', fontsize=10)
    ax.set_xlabel(clean(chart.x_label))
    ax.set_ylabel(clean(chart.y_label))
    ax.grid(color='#dddddd', linewidth=0.5)
    ax.set_axisbelow(True)
    if chart.key:
        ax.legend(loc='upper left', bbox_to_anchor=(1.02, 1), frameon=False,
                  borderaxespad=0, fontsize=9)


def draw(path, title, charts, columns=None):
    """Writes the charts as SVG, in rows of `columns`, to a path or an open
    file. Returns None, or why not."""
    if matplotlib is None:
        return ("not drawn, Python's matplotlib is missing: install Debian's "
                'python3-matplotlib')
    matplotlib.rcdefaults()  # no settings of the user's
    matplotlib.rcParams.update({
        'svg.fonttype': 'none', 'svg.hashsalt': 'chart', 'font.size': 9,
        'text.parse_math': False, 'axes.spines.top': False,
        'axes.spines.right': False, 'axes.formatter.useoffset': False})
    columns = min(columns or len(charts), len(charts))
    widths = [max(c.width() for c in charts[i::columns])
              for i in range(columns)]
    rows = -(-len(charts) // columns)
    figure = Figure((max(sum(widths), 1 + 1.3 * LETTER * len(title)),
                     0.4 + HEIGHT * rows), layout='constrained')
    if rows > 1:  # a frame's title must not touch the labels above
        figure.get_layout_engine().set(h_pad=0.12)
    frames = figure.subplots(rows, columns, squeeze=False,
                             gridspec_kw={'width_ratios': widths})
    for ax, chart in zip(frames.flat, charts):
        put_chart(ax, chart)
    figure.suptitle(clean(title), fontsize=12)
    figure.savefig(path, format='svg', metadata={'Date': None},
                   bbox_inches='tight')
    return None
