"""The report of size as one HTML file, and its picture."""
import html as markup
import io
import math

import words
from chart import CROSSES, DOTS, Chart, draw
from words import HOURS_A_MONTH, count, money, verdict

# Rows of the table of what was tried.
TRIED_MAX = 24

STYLE = '''
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .3rem; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.answer { border-left: .4rem solid #1b9e77; background: #f2f8f6;
  padding: .8rem 1.2rem; font-size: 1.1rem; }
.answer.missed { border-color: #c8372d; background: #fbf2f1; }
.note { color: #555; font-size: .92rem; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; vertical-align: top;
  border-bottom: 1px solid #ddd; }
.n { text-align: right; white-space: nowrap; }
.scroll { overflow-x: auto; }
svg { max-width: 100%; height: auto; }
'''


def text(value):
    return markup.escape(str(value))


def percent(share):
    return f'{100 * share:.2f} %'


def table(heads, rows):
    """heads: names; one that begins with > is of numbers."""
    sides = [' class="n"' if h.startswith('>') else '' for h in heads]

    def line(cells, tag):
        return '<tr>' + ''.join(
            f'<{tag}{side}>{text(c)}</{tag}>'
            for c, side in zip(cells, sides)) + '</tr>'
    return ('<div class="scroll"><table>' +
            line([h.lstrip('>') for h in heads], 'th') +
            ''.join(line(r, 'td') for r in rows) + '</table></div>')


def svg(title, charts, columns=None):
    out = io.BytesIO()
    why = draw(out, title, charts, columns)
    if why:
        return f'<p>{text(why)}</p>'
    drawn = out.getvalue().decode()
    return drawn[drawn.index('<svg'):]


# Pictures.

def size_charts(z):
    """Clusters that meet the target and those that don't; what the cheaper
    ones reach."""
    answer, charts = z['answer'], []
    ended = [e for e in z['tried'] if e['result']]
    if z['decodes']:
        groups = [('meets the target', [e for e in z['tried'] if e['meets']],
                   DOTS),
                  ('does not', [e for e in z['tried'] if not e['meets']],
                   CROSSES),
                  (f'{answer["prefill"]} + {answer["decode"]} is the '
                   f'{"cheapest" if z["priced"] else "smallest"}', [answer],
                   DOTS)]
        charts.append(Chart('Clusters simulated', 'prefill nodes',
                            'decode nodes', (), [
                                (name, [e['decode'] for e in some], mark,
                                 [e['prefill'] for e in some])
                                for name, some, mark in groups],
                            square=True, whole=True))
    x = 'price_per_hour' if z['priced'] else 'nodes'
    best = {}
    dearest = 1.5 * max(e[x] for e in (answer, z['spare'] or answer))
    for e in [answer, *ended, *z['below'], *answer['lost']]:
        if e['result'] and e[x] <= dearest:
            at = best.setdefault(e[x], [0.0, 0.0])
            at[0] = max(at[0], e['result']['effective_ratio'])
            at[1] = max(at[1], e['result']['effective_token_ratio'])
    xs = sorted(best)
    charts.append(Chart(
        'Best share', f'{z["currency"]} an hour' if z['priced'] else 'nodes in all',
        'effective', xs, [('requests', [best[n][0] for n in xs]),
                          ('input tokens', [best[n][1] for n in xs])],
        whole=not z['priced'], y_range=(0, 1), rules=target_rules(z)))
    return charts


def target_rules(z):
    return [('target', 'y', z['target'])] + (
        [('target, tokens', 'y', z['token_target'])] if z['token_target'] and
        z['token_target'] != z['target'] else [])


def picture(found):
    """Returns the picture of --plot, or None without matplotlib."""
    out = io.BytesIO()
    title = (f'{100 * found["target"]:.4g} % of requests within '
             f'{words.slos(found)}, '
             f'{", ".join(k["name"] for k in found["kinds"])}')
    return None if draw(out, title, size_charts(found)) else out.getvalue()


def capacity_charts(z, curve, name):
    """TTFT and effective shares over the load, with bands."""
    rows = curve['rows']
    xs = [r['load'] for r in rows]

    def series(measure, end=''):
        return [math.nan if r[measure + end] is None else r[measure + end]
                for r in rows]

    def bands(*measures):
        return [(i, series(m, '_least'), series(m, '_most'))
                for i, m in enumerate(measures)]
    breaks = ([('breaks', 'x', curve['fails'])]
              if curve['holds'] is not None and curve['fails'] else [])
    yield Chart(f'TTFT, {name}', 'load (1 = the trace)', 'seconds', xs,
                [('p50', series('ttft_p50_s')), ('p99', series('ttft_p99_s'))],
                log='y', bands=bands('ttft_p50_s', 'ttft_p99_s'),
                rules=[('SLO', 'y', z['slo_ttft_s']), *breaks])
    yield Chart(f'Within both SLOs, {name}', 'load (1 = the trace)', 'share',
                xs, [('requests', series('effective_ratio')),
                     ('input tokens', series('effective_token_ratio'))],
                bands=bands('effective_ratio', 'effective_token_ratio'),
                y_range=(0, 1), rules=target_rules(z) + breaks)


# Sections.

def buy_table(z, plan):
    """The nodes, and what they cost."""
    prices = {k['label']: k['price_per_hour'] for k in z['kinds']}
    what = {k['label']: k['about'] or '' for k in z['kinds']}
    rows = []
    for label, p, d in plan['mix']:
        first = 'prefill and decode' if plan['coupled'] else 'prefill'
        for n, role in ((p, first), (d, 'decode')):
            if n:
                price = prices[label]
                rows.append([n, label, what[label], role] + (
                    [] if price is None else
                    [f'{price:,.2f}', f'{n * price:,.2f}']))
    if plan['price_per_hour'] is None:
        return table(['>nodes', 'kind', 'one node is', 'role'], rows)
    rows.append([plan['nodes'], 'in all', '', '', '',
                 f'{plan["price_per_hour"]:,.2f}'])
    money_of = f'{z["currency"]} an hour'
    return table(['>nodes', 'kind', 'one node is', 'role',
                  f'>each, {money_of}', f'>{money_of}'], rows)


def cost_text(z, plan):
    price = plan['price_per_hour']
    if price is None:
        return ''
    return (f'{money(price, z["currency"])}, {price * HOURS_A_MONTH:,.0f} a month of '
            f'{HOURS_A_MONTH} hours.')


def hopeless(z):
    return text(''.join(f'{line}. ' for line in words.hopeless_lines(z)))


def kinds_list(z):
    """What the kinds of nodes are, where their files say it."""
    items = [f'<li><b>{text(k["label"])}</b>: {text(k["about"])}</li>'
             for k in z['kinds'] if k['about']]
    return ('<p>Kinds of nodes:</p><ul>' + ''.join(items) + '</ul>'
            if items else '')


def why_not(result):
    """The requests that are not effective, by reason."""
    found = words.reasons(result)
    return '' if not found else 'Not effective: ' + '; '.join(
        f'{count(n, "request")} {why}' for n, why in found) + '.'


def head(z):
    """The answer in a box."""
    answer, spare = z['answer'], z['spare']
    if answer is None:
        return ('<p class="answer missed"><b>No cluster that was allowed meets '
                f'the target.</b> {hopeless(z)}<br>' + '<br>'.join(
                    text(line) for line in words.misses_of_kinds(z)) + '</p>')
    lines = []
    if words.doubts(z):
        lines.append(f'<b>Warning: {text(words.doubts(z))}.</b>')
    if z['fixed']:
        lines.append(f'<b>The cluster as it is: {text(answer["name"])}.</b> '
                     f'It {"meets" if answer["meets"] else "misses"} the '
                     'target.')
    else:
        lines.append(f'<b>Buy {text(answer["name"])}.</b> '
                     f'{text(cost_text(z, answer))} Nothing '
                     f'{"cheaper" if z["priced"] else "smaller"} that was '
                     'tried meets the target.')
    lines.append(f'It serves {text(verdict(z, answer["result"]))} within both '
                 f'limits. {text(why_not(answer["result"]))}')
    lines.append(f'It {text(words.load_text(answer["capacity"]))}.')
    lost = [x for x in answer['lost'] if not x['meets']]
    lines.append(
        'With any one node lost it still meets the target.' if not lost else
        'It does not survive the loss of '
        f'{text(" or ".join(x["what"] for x in lost))}: see below.')
    if spare and spare['mix'] != answer['mix']:
        lines.append(f'<b>To meet the target with any one node lost, buy '
                     f'{text(spare["name"])}.</b> {text(cost_text(z, spare))}')
    missed = '' if answer['meets'] else ' missed'
    return f'<p class="answer{missed}">' + '<br>'.join(lines) + '</p>'


def lost_section(z):
    rows = []
    for which, plan in plans(z):
        for loss in plan['lost']:
            r = loss['result']
            rows.append([which, loss['what']] + (
                ['serves nothing', '', '', ''] if r is None else
                ['yes' if loss['meets'] else 'no',
                 percent(r['effective_ratio']),
                 percent(r['effective_token_ratio']),
                 f'{r["ttft_s"]["p99"]:.2f} s' if r['ttft_s'] else '']))
    return ('<h2>When a node is lost</h2>' + table(
        ['cluster', 'lost', 'meets the target', '>requests', '>input tokens',
         '>p99 TTFT'], rows) +
        '<p class="note">The whole trace at the same load with a node fewer '
        'from its beginning. The failure itself is not simulated: the requests '
        'in progress on the node, and what it had cached, are lost, too.</p>')


def plans(z):
    """Returns (name, cluster) of what could be bought."""
    if not z['answer']:
        return []
    spare = z['spare']
    return [('the answer', z['answer'])] + (
        [('with a spare', spare)]
        if spare and spare['mix'] != z['answer']['mix'] else [])


def capacity_section(z):
    charts, rows = [], []
    for which, plan in plans(z):
        for name, curve in ((which, plan['capacity']),
                            (f'{which}, a node lost', plan['lost_capacity'])):
            if curve is None:
                continue
            charts += capacity_charts(z, curve, name)
            rows += [[name, f'{r["load"]:g}', 'yes' if r['meets'] else 'no'] +
                     ['' if r[k] is None else f'{r[k]:.2f}'
                      for k in ('ttft_p50_s', 'ttft_p99_s')] +
                     [f'{percent(r[k])} ({percent(r[k + "_least"])} to '
                      f'{percent(r[k + "_most"])})'
                      for k in ('effective_ratio', 'effective_token_ratio')]
                     for r in curve['rows']]
    band = (f'The bands are the least and the most of the trace and of '
            f'{z["resamples"]} traces made from its '
            f'{count(z["sessions"], "session")}: at each start of a session '
            'another one that began at about that time, drawn at random. '
            if z['resamples'] and z['sessions'] > 1 else '')
    return ('<h2>What it holds, and when it breaks</h2>' +
            svg('Load against latency and shares', charts, 2) +
            f'<p class="note">A load of 2 plays the trace twice as fast. '
            f'{band}TTFT is that of requests that were served; rejected ones '
            'have none, and count in the shares.</p><details><summary>The '
            'numbers</summary>' + table(
                ['cluster', '>load', 'meets', '>p50 TTFT (s)', '>p99 TTFT (s)',
                 '>requests', '>input tokens'], rows) + '</details>')


def tried_section(z):
    x = 'price_per_hour' if z['priced'] else 'nodes'
    top = z['answer'][x] if z['answer'] else math.inf
    tried = f'{count(len(z["tried"]), "cluster")} simulated'
    near = sorted((e for e in z['tried'] if e[x] <= top),
                  key=lambda e: (-e[x], not e['meets'], -(e['judged'] or 0)))
    rows = []
    for e in near[:TRIED_MAX]:
        r = e['result']
        rows.append([e['name'],
                     '' if e['price_per_hour'] is None else
                     f'{e["price_per_hour"]:,.2f}',
                     'yes' if e['meets'] else 'no', *(
                         (percent(r['effective_ratio']),
                          percent(r['effective_token_ratio'])) if r else
                         (f'given up after {e["judged"]:,} requests', ''))])
    drawn = svg('What was simulated', size_charts(z)) if z['answer'] else ''
    listed = (f'the {len(near)}' if len(rows) == len(near) else
              f'the dearest {len(rows)} of the {len(near)}')
    if z['answer']:
        listed += ' that cost no more than the answer, the dearest first'
    else:
        listed += ', the dearest first'
    return (f'<h2>What was tried</h2><p>{text(words.tried_text(z))}.</p>' +
            drawn + table(
                ['cluster', f'>{z["currency"]} an hour' if z['priced'] else
                 '>an hour', 'meets', '>requests', '>input tokens'], rows) +
            f'<p class="note">Of {tried} this table lists {listed}; '
            '<code>--csv</code> lists all.</p>')


def basis_section(z):
    rows = [[k['label'], k['source'] or 'its file names no source',
             'none' if k['price_per_hour'] is None else
             f'{k["price_per_hour"]:,.2f} {z["currency"]}',
             k['price_source'] or ('' if k['price_per_hour'] is None else
                                   'its file names no source')]
            for k in z['kinds']]
    return (
        '<h2>What this was computed from</h2>' + table(
            ['kind of node', 'where its speed comes from', '>price an hour',
             'where its price comes from'], rows) +
        f'<p>Requests: {count(z["requests"], "request")} with '
        f'{z["tokens"]:,} input tokens of {text(z["trace"])} at speed '
        f'{z["speed"]:g}. Limits of each request: {text(words.slos(z))}; '
        f'target: {text(words.asked(z))}. Links of '
        f'{z["kinds"][0]["link_gbps"]:g} Gbit/s, policy {text(z["policy"])}, '
        f'{text(z["version"])}. {hopeless(z)}</p>')


def sure_section(z):
    curve = z['answer'] and z['answer']['capacity']
    lines = []
    if curve and len(curve['holds_of_parts']) > 1:
        parts = curve['holds_of_parts'][1:]
        held = sum(x >= 1 for x in parts)
        lines.append(f'Chance: {held} of {len(parts)} resampled traces meet '
                     'the target on the answer at load 1. If few do, another '
                     'hour of the same traffic may miss it.')
    lines += [
        'Speed: the simulator decides with the conductor\'s own code, and '
        'takes times from the cost of each kind. An error of these costs '
        'moves the answer as much as an error of the load does: the table '
        'above says what is known of it.',
        'Traffic: next month\'s requests are not those of the trace. The load '
        'at which the cluster breaks is the margin for growth.',
        'Not simulated: failures while they happen, engines that start, '
        'prices by the month, power, and the machines of the conductor.']
    return ('<h2>How sure this is</h2><ul>' +
            ''.join(f'<li>{text(x)}</li>' for x in lines) + '</ul>')


def html(z):
    """Returns the report."""
    title = ('What a cluster holds' if z['fixed'] else
             'Which cluster to buy') + f' for {z["trace"].split("/")[-1]}'
    body = [f'<h1>{text(title)}</h1>',
            f'<p class="note">Target: {text(words.asked(z))} with '
            f'{text(words.slos(z))}. {text(words.definitions(z))}</p>',
            kinds_list(z), head(z)]
    for which, plan in plans(z):
        if len(plans(z)) > 1:
            body.append(f'<h2>What to buy: {which}</h2>')
        else:
            body.append('<h2>What to buy</h2>' if not z['fixed'] else
                        '<h2>What it is</h2>')
        body.append(buy_table(z, plan))
    if z['answer']:
        body += [capacity_section(z), lost_section(z)]
    if not z['fixed'] and z['tried']:
        body.append(tried_section(z))
    body += [basis_section(z), sure_section(z)]
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f'<title>{text(title)}</title><style>{STYLE}</style></head><body>'
            + '\n'.join(body) + '</body></html>\n')
