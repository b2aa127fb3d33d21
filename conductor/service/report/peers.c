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
        {"up", "gauge",
         "1 while Redis takes commands and delivers other conductors' events.",
         c.up},
        {"conductors", "gauge", "Conductors with a lease.", (double)c.members},
        {"leader", "gauge",
         "1 while this conductor leads, that is, orders copies and role "
         "switches.",
         c.leads},
        {"led_total", "counter", "Times that this conductor became the leader.",
         (double)c.led},
        {"leases_total", "counter", "Leases that this conductor was given.",
         (double)c.leases},
        {"commands_total", "counter", "Commands sent to Redis.",
         (double)(r->commands + c.reads.commands)},
        {"unanswered_total", "counter",
         "Commands sent to Redis without an answer.",
         (double)(r->unanswered + c.reads.unanswered)},
        {"refused_total", "counter",
         "Commands not sent to Redis, for lack of a connection or of room.",
         (double)(r->refused + c.reads.refused)},
        {"losses_total", "counter", "Lost connections to Redis.",
         (double)(r->losses + c.reads.losses)},
        {"round_trip_seconds_total", "counter",
         "Sum of the times from command to answer.",
         (double)r->round_trip_us / 1e6},
        {"told_total", "counter",
         "Batches of events published to the other conductors.",
         (double)c.told},
        {"echoes_total", "counter",
         "Own batches read back, as other conductors read them.",
         (double)c.echoes},
        {"echo_seconds_total", "counter",
         "Sum of the times from an event until its batch was read back.",
         (double)c.echo_us / 1e6},
        {"untold_total", "counter", "Batches that Redis did not take.",
         (double)c.untold},
        {"told_all_total", "counter",
         "Times that this conductor published its full state.",
         (double)c.told_all},
        {"asked_total", "counter",
         "Times that this conductor asked others for their full state.",
         (double)c.asked},
        {"heard_total", "counter", "Batches received from other conductors.",
         (double)c.foreign.batches},
        {"gaps_total", "counter",
         "Times that a batch of another conductor was missed.",
         (double)c.foreign.gaps},
        {"missing", "gauge",
         "Other conductors whose full state is awaited, because a batch was "
         "missed.",
         (double)c.foreign.missing},
        {"fenced_total", "counter",
         "Batches of other conductors ignored because their lease is older "
         "than the one already seen.",
         (double)c.foreign.fenced},
        {"unbooked_total", "counter",
         "Prefills and decodes of other conductors that could not be booked "
         "for lack of room.",
         (double)c.foreign.unbooked},
        {"expired_total", "counter",
         "Other conductors whose lease ended, so that their bookings were "
         "removed.",
         (double)c.foreign.dropped},
        {"limits_alone", "gauge",
         "1 while this conductor applies only its own share of the limits of "
         "keys.",
         c.limits.alone},
        {"limits_told_total", "counter",
         "Times that Redis took a report of what keys have used of their "
         "limits.",
         (double)c.limits.told},
        {"foreign_requests", "gauge",
         "Requests of other conductors that are booked here.",
         (double)c.foreign.entries},
    };

    return cluster ? write_lines(all, sizeof(all) / sizeof(all[0]), out) : 0;
}
