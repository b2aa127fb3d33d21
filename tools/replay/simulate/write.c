/* One simulation's result as JSON and text; see sim.h. */
#include <inttypes.h>

#include "tools/replay/simulate/sim.h"

static json_t *count_json(const struct sim_count *c)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)c->count, "bytes",
                     (json_int_t)c->bytes);
}

/* Returns "replicas": a list of times, and per rank the block and its copies.
 */
static json_t *copies_json(const struct replay_sim_result *r)
{
    json_t *times = json_array();
    json_t *ranks = json_array();
    size_t width = r->facts.n_ranked;

    for (size_t t = 0; t < r->copies.n; t++) {
        json_array_append_new(times,
                              json_real((double)r->copies.at_us[t] / 1e6));
    }
    for (size_t w = 0; w < width; w++) {
        json_t *counts = json_array();

        for (size_t t = 0; t < r->copies.n; t++) {
            json_array_append_new(
                counts, json_integer(r->copies.copies[t * width + w]));
        }
        json_array_append_new(
            ranks,
            json_pack("{s:I, s:I, s:I, s:o}", "rank",
                      (json_int_t)replay_ranks[w], "block",
                      (json_int_t)r->facts.ranked[w], "references",
                      (json_int_t)r->facts.references[w], "copies", counts));
    }
    return json_pack("{s:f, s:o, s:o}", "interval_s",
                     (double)r->copies.interval_us / 1e6, "times_s", times,
                     "ranks", ranks);
}

/* Returns the tokens loaded by plans, by source tier. */
static json_t *loaded_json(const uint64_t *tokens)
{
    json_t *out = json_object();

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        if (json_object_set_new(out, block_tiers[t].name,
                                json_integer((json_int_t)tokens[t]))) {
            json_decref(out);
            return NULL;
        }
    return out;
}

/* Returns the counts of refused prompts in the background. */
static json_t *warm_json(const struct warm_counts *w)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "jobs",
                     (json_int_t)w->jobs, "joined", (json_int_t)w->joined,
                     "crowded", (json_int_t)w->crowded, "begun",
                     (json_int_t)w->begun, "pieces", (json_int_t)w->pieces,
                     "tokens", (json_int_t)w->tokens, "done",
                     (json_int_t)w->done, "late", (json_int_t)w->late,
                     "dropped", (json_int_t)w->dropped);
}

/* Returns the counts of hot blocks copied ahead of demand. */
static json_t *replication_json(const struct sim_summary *s)
{
    const struct replication_counts *r = &s->replication;

    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "passes", (json_int_t)r->passes,
        "wanted", (json_int_t)r->wanted, "pieces", (json_int_t)r->pieces,
        "bytes", (json_int_t)s->copies.bytes, "blocks", (json_int_t)r->blocks,
        "failed", (json_int_t)r->failed, "dropped", (json_int_t)r->dropped);
}

/* Returns the nodes' role switches. */
static json_t *switches_json(const struct replay_switches *switches)
{
    json_t *list = json_array();

    for (size_t i = 0; i < switches->n; i++) {
        const struct sim_switch *s = &switches->at[i];

        json_array_append_new(
            list, json_pack("{s:f, s:I, s:s}", "at_s", (double)s->at_us / 1e6,
                            "node", (json_int_t)s->node, "to",
                            s->to == ROLE_PREFILL ? "prefill" : "decode"));
    }
    return list;
}

json_t *replay_sim_json(const struct replay_sim_result *result, bool timing)
{
    const struct sim_summary *s = &result->summary;
    double rate =
        result->wall_s > 0 ? (double)s->requests / result->wall_s : 0.0;
    json_t *json = replay_report_json(&result->report);
    json_t *sim = json_pack(
        "{s:f, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "simulated_s",
        (double)s->simulated_us / 1e6, "events", (json_int_t)s->events,
        "decisions", (json_int_t)s->decisions, "max_unfinished",
        (json_int_t)s->max_unfinished, "max_waiting_for_room",
        (json_int_t)s->max_waiting_for_room, "skipped_lines",
        (json_int_t)result->skipped, "wall_s",
        timing ? json_real(result->wall_s) : json_null(), "requests_per_wall_s",
        timing ? json_real(rate) : json_null());

    if (sim && s->asked_again > 0 &&
        (json_object_set_new(sim, "asked_again",
                             json_integer((json_int_t)s->asked_again)) != 0 ||
         json_object_set_new(sim, "accepted_again",
                             json_integer((json_int_t)s->accepted_again)) !=
             0)) {
        json_decref(sim);
        sim = NULL;
    }
    if (!json || json_object_set_new(json, "sim", sim) != 0 ||
        (s->warm.jobs > 0 &&
         json_object_set_new(json, "warm", warm_json(&s->warm)) != 0) ||
        (s->lent > 0 &&
         json_object_set_new(json, "lent", json_integer((json_int_t)s->lent)) !=
             0) ||
        (s->replication.passes > 0 &&
         json_object_set_new(json, "replication", replication_json(s)) != 0) ||
        (s->roles.passes > 0 &&
         json_object_set_new(json, "role_switches",
                             switches_json(&result->switches)) != 0) ||
        json_object_set_new(json, "transfers", count_json(&s->fetches)) != 0 ||
        json_object_set_new(json, "loaded_tokens",
                            loaded_json(s->loaded_tokens)) != 0 ||
        json_object_set_new(json, "pushes", count_json(&s->pushes)) != 0 ||
        json_object_set_new(json, "replicas", copies_json(result)) != 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

void replay_sim_print(const struct replay_sim_result *result, FILE *file)
{
    const struct sim_summary *s = &result->summary;

    replay_report_print(&result->report, file);
    if (s->asked_again > 0)
        fprintf(file, "  %-22s %10" PRIu64 "  accepted then %" PRIu64 "\n",
                "rejected, asked again", s->asked_again, s->accepted_again);
    if (s->lent > 0)
        fprintf(file, "  %-22s %10" PRIu64 "\n", "lent other nodes", s->lent);
    if (s->warm.jobs > 0)
        fprintf(file,
                "  %-22s %10" PRIu64 "  begun %" PRIu64 ", done %" PRIu64
                ", %" PRIu64 " tokens\n",
                "rejected, warmed", s->warm.jobs, s->warm.begun, s->warm.done,
                s->warm.tokens);
    if (s->replication.passes > 0)
        fprintf(file, "  %-22s %10" PRIu64 "  (%.3g GB), %" PRIu64 " to drop\n",
                "copies ahead, pieces", s->replication.pieces,
                (double)s->copies.bytes / 1e9, s->replication.dropped);
    if (s->roles.passes > 0)
        fprintf(file,
                "  %-22s %10" PRIu64 "  to prefill %" PRIu64
                ", to decode %" PRIu64 "\n",
                "roles switched", s->roles.taken, s->roles.begun[0][0],
                s->roles.begun[0][1]);
    fprintf(file,
            "  %-22s %10" PRIu64 "  (%.3g GB)\n  %-22s %10" PRIu64
            "  (%.3g GB)\n  %-22s %10" PRIu64 "  at once\n  %-22s %10" PRIu64
            "\n\n",
            "fetches between nodes", s->fetches.count,
            (double)s->fetches.bytes / 1e9, "KV sent to decode nodes",
            s->pushes.count, (double)s->pushes.bytes / 1e9, "requests, at most",
            s->max_unfinished, "events", s->events);
}
