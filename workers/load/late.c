/* Gives up runs that miss their deadline. */
#include <errno.h>

#include "base/log.h"
#include "workers/load/internal.h"

static bool is_waited_for(const struct load_run *run)
{
    return !run->open || run->in_flight > 0 ||
           (run->load->r->load.held_back && run->until_us == 0 && !run->ended);
}

/* Closes `run`. Pieces that its source cannot hand back now keep their blocks,
 * and the request gets others. Returns 0, or -ENOSPC: no room for others. */
static int give_up(struct load_run *run)
{
    struct load *load = run->load;
    struct loader_piece *p;

    log_warn("request %llu: loading from %s takes too long",
             (unsigned long long)load->r->id, run->source->name);
    run->source->silent |=
        load_run_silent_us(run) <= loader_now_us(run->load->loader);
    run->open = true;
    load_close_run(run);
    while ((p = LIST_FIRST(&run->pieces))) {
        if (load->r->blocks.ids[p->block] == p->id &&
            load_replace(load, p->block) < 0)
            return -ENOSPC;
        load_miss(p, -ETIMEDOUT);
        p->hung = true;
        run->source->n_hung++;
    }
    load->loader->ops->poke(load->loader->arg); /* other loads may go on */
    return 0;
}

bool load_give_up(struct loader *l, struct load *load)
{
    if (load->r->step.under_way)
        return false; /* the step may wait for layers, at most 250 ms */
    for (uint32_t i = 0; i < load->n_runs; i++) {
        struct load_run *run = &load->runs[i];

        if (run->source->n_hung > 0 || run->source->silent)
            run->ended = true;
        if (!is_waited_for(run))
            continue;
        if (loader_now_us(l) < load_run_until_us(run)) {
            loader_wake_at(l, load_run_until_us(run));
        } else if (give_up(run) < 0) {
            l->ops->failed(
                l->arg, load->r,
                "reads hang, and there is no free KV block to compute instead");
            return true;
        }
    }
    return false;
}
