/* Metrics of the exchange with other conductors. */
#include <event2/buffer.h>
#include <inttypes.h>

#include "conductor/service/report/internal.h"

struct line {
    const char *name, *type, *help;
    double value;
};

static int write_lines(const struct line *all, size_t n, struct evbuffer *out)
{
    int bad = 0;

    for (size_t i = 0; i < n; i++)
        bad |= evbuffer_add_printf(out,
                                   "# HELP conductor_state_%s %s\n"
                                   "# TYPE conductor_state_%s %s\n"
                                   "conductor_state_%s %.15g\n",
                                   all[i].name, all[i].help, all[i].name,
                                   all[i].type, all[i].name, all[i].value) < 0;
    return bad;
}

int report_peers(const struct cluster *cluster, struct evbuffer *out)
{
    const struct cluster_counts c = cluster_counts(cluster);
    const struct redis_counts *r = &c.commands;
    const struct line all[] = {
        {"up", "gauge", "Whether Redis takes commands and tells news.", c.up},
        {"conductors", "gauge", "Conductors with a lease.", (double)c.members},
        {"leader", "gauge", "Whether this one replicates and switches roles.",
         c.leads},
        {"led_total", "counter", "Times that it became the leader.",
         (double)c.led},
        {"leases_total", "counter", "Leases that it was given.",
         (double)c.leases},
        {"commands_total", "counter", "Commands that Redis was sent.",
         (double)(r->commands + c.reads.commands)},
        {"unanswered_total", "counter", "Of these, without an answer.",
         (double)(r->unanswered + c.reads.unanswered)},
        {"refused_total", "counter",
         "Commands for which there was no connection or no room.",
         (double)(r->refused + c.reads.refused)},
        {"losses_total", "counter", "Connections to Redis that were lost.",
         (double)(r->losses + c.reads.losses)},
        {"round_trip_seconds_total", "counter",
         "Time to answers of commands, summed up.",
         (double)r->round_trip_us / 1e6},
        {"told_total", "counter", "Batches of events that others were told.",
         (double)c.told},
        {"echoes_total", "counter",
         "Batches that were read as other conductors read them.",
         (double)c.echoes},
        {"echo_seconds_total", "counter",
         "Time from what happened to that, summed up.",
         (double)c.echo_us / 1e6},
        {"untold_total", "counter", "Batches that Redis did not take.",
         (double)c.untold},
        {"told_all_total", "counter", "Times that others were told all.",
         (double)c.told_all},
        {"asked_total", "counter", "Times that others were asked for all.",
         (double)c.asked},
        {"heard_total", "counter", "Batches that others told.",
         (double)c.foreign.batches},
        {"gaps_total", "counter", "Times that a batch of others was missed.",
         (double)c.foreign.gaps},
        {"missing", "gauge",
         "Other conductors that are yet to tell all, as a batch was missed.",
         (double)c.foreign.missing},
        {"fenced_total", "counter",
         "Batches of others with an older lease than they had, which do not "
         "count.",
         (double)c.foreign.fenced},
        {"unbooked_total", "counter",
         "Prefills and decodes of others that found no room in the books.",
         (double)c.foreign.unbooked},
        {"expired_total", "counter",
         "Conductors whose lease ended, and whose bookings left.",
         (double)c.foreign.dropped},
        {"limits_alone", "gauge",
         "Whether limits of keys are this one's share of them.",
         c.limits.alone},
        {"limits_told_total", "counter",
         "Times that Redis took what keys have taken of their limits.",
         (double)c.limits.told},
        {"foreign_requests", "gauge", "Requests of others that are booked.",
         (double)c.foreign.entries},
    };

    return cluster ? write_lines(all, sizeof(all) / sizeof(all[0]), out) : 0;
}
