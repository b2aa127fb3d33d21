/* See losses.h. */
#include "conductor/service/losses.h"

#include <stdio.h>
#include <string.h>

#include "base/loop/loop.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/internal.h"
#include "conductor/service/models.h"

void losses_note(struct losses *losses, const char *name, int64_t now_us)
{
    struct loss *at = &losses->last[losses->n++ % LOSSES_MAX];

    at->at_us = now_us;
    snprintf(at->name, sizeof(at->name), "%s", name);
}

void service_lost(struct service *service, const char *name)
{
    service->metrics.workers_lost++;
    losses_note(&service->models->losses, name, loop_now_us(service->loop));
}

/* Returns how many of the losses [from, n) are of this name. */
static unsigned count(const struct losses *losses, uint64_t from,
                      const char *name)
{
    unsigned n = 0;

    for (uint64_t i = from; i < losses->n; i++)
        n += strcmp(losses->last[i % LOSSES_MAX].name, name) == 0;
    return n;
}

int losses_write(const struct losses *losses, const struct drains *drains,
                 int64_t now_us, struct text_buf *out)
{
    uint64_t first = losses->n > LOSSES_MAX ? losses->n - LOSSES_MAX : 0;
    char label[2 * SERVICE_NAME_BYTES];
    int bad = text_buf_printf(
                  out, "# HELP conductor_instance_losses How often an instance "
                       "that is not drained was lost in the last 10 minutes.\n"
                       "# TYPE conductor_instance_losses gauge\n") < 0;

    while (first < losses->n &&
           now_us - losses->last[first % LOSSES_MAX].at_us > LOSSES_US)
        first++;
    for (uint64_t i = first; i < losses->n; i++) {
        const char *name = losses->last[i % LOSSES_MAX].name;

        /* The last loss of a name writes its line. */
        if (count(losses, i, name) > 1 || drains_has(drains, name))
            continue;
        metrics_escape(name, label);
        bad |= text_buf_printf(
                   out, "conductor_instance_losses{instance=\"%s\"} %u\n",
                   label, count(losses, first, name)) < 0;
    }
    return bad;
}
