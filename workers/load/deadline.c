/* The one deadline of a run, which moves with the progress of the run and of
 * its source. */

#include "base/loop/loop.h"
#include "workers/load/internal.h"

/* How long a run may take for its next piece, and how long to report what it
 * has. The latter is shorter: by layers, the load begins only then. */
#define PATIENCE_US 30000000
#define OPEN_US 15000000

/* While a request waits for all of its blocks, all pieces of a run together
 * move its deadline by at most HELD_RATIO times the prompt's computing time: a
 * source that never stops, but sends almost nothing, is given up. */
#define HELD_RATIO 4

/* A source of known rate counts as silent after SILENT_US plus SILENT_RATIO
 * times the time of its pieces in flight. TCP resends a packet lost at the
 * beginning of a connection after 1 s. */
#define SILENT_RATIO 4
#define SILENT_US 1500000

/* A bound, so that no time overflows. */
#define EARNED_MAX_US 1e12

void load_run_asked(struct load_run *run)
{
    struct loader *l = run->load->loader;

    if (run->until_us == 0)
        run->until_us = loader_now_us(l) + PATIENCE_US;
    loader_wake_at(l, load_run_until_us(run));
}

/* Pieces for other loads also show that the source is not silent. No limit
 * applies while it has nothing to send, or while the engine computes, since
 * then no request waits. */
int64_t load_run_silent_us(const struct load_run *run)
{
    const struct loader_source *s = run->source;
    const struct loader *l = s->loader;
    double bytes_per_s = load_rate_bytes_per_s(&s->rate);
    int64_t from_us = s->pace.end_us;

    if (!run->load->r->load.held_back || bytes_per_s <= 0 ||
        (run->open && s->in_flight == 0))
        return INT64_MAX;
    if (!run->open && from_us < run->load->last_us)
        from_us = run->load->last_us;
    if (from_us < l->throttle.free_us)
        from_us = l->throttle.free_us;
    double us = SILENT_RATIO * 1e6 * s->in_flight *
                (double)l->config.layout->block_bytes / bytes_per_s;
    return from_us + SILENT_US +
           (int64_t)(us < EARNED_MAX_US ? us : EARNED_MAX_US);
}

int64_t load_run_until_us(const struct load_run *run)
{
    int64_t silent_us = load_run_silent_us(run);
    int64_t until_us = run->until_us;

    /* Not asked for a piece yet: its source may be busy with other loads. */
    if (until_us == 0)
        until_us = run->load->last_us + (run->open ? PATIENCE_US : OPEN_US);
    return silent_us < until_us ? silent_us : until_us;
}

/* Returns by how much (us) `p` moves the deadline of a run that a waiting
 * request depends on. */
static int64_t earned_us(const struct load *load, const struct loader_piece *p)
{
    const struct loader *l = load->loader;
    double us = step_pace_us(&l->pace, load->r->prompt.n_tokens, 0, 0);
    double share = (double)p->bytes / (double)l->config.layout->block_bytes /
                   load->r->prompt.n_reusable;

    us = us > 0 ? HELD_RATIO * us * share : 0;
    return (int64_t)(us < EARNED_MAX_US ? us : EARNED_MAX_US);
}

void load_run_came(struct load_run *run, const struct loader_piece *p)
{
    if (run->load->r->load.held_back)
        run->until_us += earned_us(run->load, p);
    else if (run->in_flight > 0)
        run->until_us = loader_now_us(run->load->loader) + PATIENCE_US;
    else
        run->until_us = 0;
}

/* --- wake-up ------------------------------------------------------------ */

void loader_wake_at(struct loader *l, int64_t when_us)
{
    if (when_us >= l->wake_us)
        return;
    l->wake_us = when_us;
    if (!l->config.loop)
        return;
    int64_t us = when_us - loader_now_us(l);
    loop_timer_start(&l->timer, us > 0 ? us : 0);
}
