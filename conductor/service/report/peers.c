/* Metrics of the exchange with other conductors. */
#include <inttypes.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/report/internal.h"

struct line {
    const char *name, *type, *help;
    double value;
};

static int write_lines(const struct line *all, size_t n, struct text_buf *out)
{
    int bad = 0;

    for (size_t i = 0; i < n; i++)
        bad |= text_buf_printf(out,
                               "# HELP conductor_state_%s %s\n"
                               "# TYPE conductor_state_%s %s\n"
                               "conductor_state_%s %.15g\n",
                               all[i].name, all[i].help, all[i].name,
                               all[i].type, all[i].name, all[i].value) < 0;
    return bad;
}

int report_peers(const struct cluster *cluster, struct text_buf *out)
{
    const struct cluster_counts c = cluster_counts(cluster);
    const struct redis_counts *r = &c.commands;
    const struct line all[] = {
        {"up", "gauge",
         "1 while Redis takes commands and delivers other conductors' events.",
         c.up},
        {"conductors", "gauge", "Conductors that hold a lease.",
         (double)c.members},
        {"leader", "gauge",
         "1 while this conductor leads: it orders copies and role switches.",
         c.leads},
        {"led_total", "counter", "How often this conductor became the leader.",
         (double)c.led},
        {"leases_total", "counter", "Leases granted to this conductor.",
         (double)c.leases},
        {"commands_total", "counter", "Commands sent to Redis.",
         (double)(r->commands + c.reads.commands)},
        {"unanswered_total", "counter", "Commands to Redis that got no answer.",
         (double)(r->unanswered + c.reads.unanswered)},
        {"refused_total", "counter",
         "Commands not sent to Redis, because there was no connection or the "
         "queue was full.",
         (double)(r->refused + c.reads.refused)},
        {"losses_total", "counter", "Connections to Redis that were lost.",
         (double)(r->losses + c.reads.losses)},
        {"round_trip_seconds_total", "counter",
         "Sum of the times from a command to Redis's answer.",
         (double)r->round_trip_us / 1e6},
        {"told_total", "counter",
         "Batches of events published to the other conductors.",
         (double)c.told},
        {"echoes_total", "counter",
         "Batches of this conductor read back from Redis.", (double)c.echoes},
        {"echo_seconds_total", "counter",
         "Sum of the times from an event until its batch was read back from "
         "Redis.",
         (double)c.echo_us / 1e6},
        {"untold_total", "counter",
         "Batches of events that Redis did not take.", (double)c.untold},
        {"told_all_total", "counter",
         "How often this conductor published its full state.",
         (double)c.told_all},
        {"asked_total", "counter",
         "How often this conductor asked others for their full state.",
         (double)c.asked},
        {"heard_total", "counter",
         "Batches of events received from other conductors.",
         (double)c.foreign.batches},
        {"gaps_total", "counter",
         "Batches of other conductors that were missed.",
         (double)c.foreign.gaps},
        {"missing", "gauge",
         "Other conductors whose full state is awaited after a missed batch.",
         (double)c.foreign.missing},
        {"fenced_total", "counter",
         "Batches of other conductors ignored because a newer lease is known.",
         (double)c.foreign.fenced},
        {"unbooked_total", "counter",
         "Prefills and decodes of other conductors not booked for lack of "
         "room.",
         (double)c.foreign.unbooked},
        {"expired_total", "counter",
         "Other conductors whose lease ended and whose bookings were removed.",
         (double)c.foreign.dropped},
        {"limits_alone", "gauge",
         "1 while this conductor applies only its own share of keys' limits.",
         c.limits.alone},
        {"limits_told_total", "counter",
         "Reports of keys' limit use that Redis accepted.",
         (double)c.limits.told},
        {"foreign_requests", "gauge",
         "Requests of other conductors booked at this conductor.",
         (double)c.foreign.entries},
    };

    return cluster ? write_lines(all, sizeof(all) / sizeof(all[0]), out) : 0;
}
