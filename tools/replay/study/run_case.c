/* Reads the cases of questions; see run.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tools/replay/study/run.h"

struct replay_stream_options run_source(const struct runner *r,
                                        const json_t *question)
{
    const json_t *from = json_object_get(question, "source");
    struct replay_stream_options source = r->study.source;

    source.ties_seed = run_count(from, "ties_seed");
    if (!run_text(from, "path"))
        return source;
    source.path = run_text(from, "path");
    source.like = run_text(from, "like");
    source.like_seed = run_count(from, "like_seed");
    source.like_rate = run_number(from, "like_rate");
    source.from = 0;
    source.requests = run_count(from, "requests");
    source.block_tokens = (uint32_t)run_count(from, "block_tokens");
    source.length_scale = (uint32_t)run_count(from, "length_scale");
    source.regular_only = true;
    return source;
}

/* Returns the closed loop, which borrows from the question. */
static struct closed_loop_options loop_of(const json_t *from)
{
    return (struct closed_loop_options){
        .path = run_text(from, "path"),
        .in_flight = (uint32_t)run_count(from, "in_flight"),
        .think_max_us = (int64_t)run_count(from, "think_max_us"),
        .input_max_tokens = (uint32_t)run_count(from, "input_max_tokens"),
        .sessions = run_count(from, "sessions"),
        .until_us = (int64_t)run_count(from, "until_us")};
}

/* Reads `changes`, numbers; a missing one changes nothing. */
static struct cluster_changes changes_of(const json_t *question)
{
    static const char *const names[] = {"prefill", "decode", "link-gbps",
                                        "cache-tokens"};
    const json_t *changes = json_object_get(question, "changes");
    double to[4];

    for (size_t i = 0; i < 4; i++) {
        const json_t *value = json_object_get(changes, names[i]);

        to[i] = value ? json_number_value(value) : -1;
    }
    return (struct cluster_changes){(int64_t)to[0], (int64_t)to[1], to[2],
                                    to[3]};
}

/* Loads a cluster file, or the same as an object. */
static int load(struct runner *r, const json_t *from, struct cluster *cluster)
{
    int rc = -EINVAL;

    if (json_is_string(from))
        return cluster_load_file(json_string_value(from), cluster, r->error);
    char *text = json_dumps(from, JSON_REAL_PRECISION(17));
    snprintf(r->error, sizeof r->error, "no such question");
    if (text)
        rc = cluster_load_buffer(text, strlen(text), "", cluster, r->error);
    free(text);
    return rc;
}

/* Adds `nodes` nodes of a kind to the groups of a role. */
static void add_group(struct cluster *c, const struct cluster *kind,
                      bool decodes, uint32_t nodes)
{
    struct cluster_group *g = &c->groups[c->n_groups];
    uint32_t first = 0;

    for (uint32_t i = 0; i < c->n_groups; i++)
        if (c->groups[i].decodes == decodes)
            first += c->groups[i].nodes;
    c->n_groups++;
    *g =
        (struct cluster_group){.decodes = decodes,
                               .first = first,
                               .nodes = nodes,
                               .has_prefill = !decodes,
                               .has_decode = decodes || kind->coupled_nodes > 0,
                               .decode_kv_tokens = kind->decode_kv_tokens,
                               .decode_max_batch = kind->decode_max_batch};
    memcpy(g->prefill_us, kind->cost.prefill, sizeof g->prefill_us);
    memcpy(g->decode_us, kind->cost.decode, sizeof g->decode_us);
    memcpy(g->tiers, kind->tiers, sizeof g->tiers);
    for (size_t t = 0; t < BLOCK_TIERS; t++)
        g->has_tier[t] = !decodes;
}

/* Adds `groups`: [[cluster file of the kind, whether they decode, nodes]]. */
static int add_groups(struct runner *r, const json_t *question,
                      struct cluster *cluster)
{
    const json_t *groups = json_object_get(question, "groups");
    struct cluster_changes changes = changes_of(question);
    int rc = 0;

    changes.prefill_nodes = changes.decode_nodes = -1;
    for (size_t i = 0; rc == 0 && i < json_array_size(groups); i++) {
        const json_t *group = json_array_get(groups, i);
        struct cluster kind;

        if (cluster->n_groups == CLUSTER_GROUPS_MAX)
            return error_say(r->error, sizeof r->error, -EINVAL,
                             "more than %d groups", CLUSTER_GROUPS_MAX);
        rc = load(r, json_array_get(group, 0), &kind);
        if (rc == 0)
            rc = cluster_override(&kind, &changes, r->error);
        if (rc == 0)
            add_group(cluster, &kind, json_is_true(json_array_get(group, 1)),
                      (uint32_t)json_integer_value(json_array_get(group, 2)));
    }
    return rc;
}

int run_read_cluster(struct runner *r, const json_t *question,
                     struct cluster *cluster)
{
    const struct cluster_changes changes = changes_of(question);
    int rc = load(r, json_object_get(question, "cluster"), cluster);

    if (rc == 0)
        rc = add_groups(r, question, cluster);
    return rc == 0 ? cluster_override(cluster, &changes, r->error) : rc;
}

/* Reads the settings of a policy: {option: number}. */
static int read_settings(struct runner *r, json_t *from,
                         struct policy_settings *settings)
{
    const char *name;
    json_t *value;

    json_object_foreach(from, name, value)
    {
        char text[128];

        snprintf(text, sizeof text, "%s=%.17g", name, json_number_value(value));
        if (policy_settings_add(settings, text, r->error, sizeof r->error) != 0)
            return -EINVAL;
    }
    return 0;
}

int run_read_case(struct runner *r, const json_t *from, struct replay_case *c,
                  struct run_case *of)
{
    json_t *settings = json_object_get(from, "settings");
    const json_t *loop = json_object_get(from, "loop");
    const char *csv = run_text(from, "csv");

    *c = (struct replay_case){
        .policy = run_text(from, "policy"),
        .settings = settings ? &of->settings : &r->numbers.settings,
        .admission = r->admission,
        .source = &of->source,
        .loop = loop ? &of->loop : NULL,
        .speed = run_number(from, "speed"),
        .slo_ttft_s = run_number(from, "slo_ttft_s"),
        .slo_tbt_s = run_number(from, "slo_tbt_s"),
        .effective_ttft_s = run_number(from, "effective_ttft_s"),
        .effective_tbt_s = run_number(from, "effective_tbt_s"),
        .seed = run_count(from, "seed"),
        .gives_up = json_object_get(from, "misses_max"),
        .misses_max = run_count(from, "misses_max"),
        .miss_tokens_max = run_count(from, "miss_tokens_max"),
        .interval_s = run_number(from, "interval_s")};
    of->source = run_source(r, from);
    of->loop = loop_of(loop);
    if (read_settings(r, settings, &of->settings) != 0 ||
        run_read_cluster(r, from, &c->cluster) != 0)
        return -EINVAL;
    if (csv && !(c->csv = fopen(csv, "we")))
        return error_say(r->error, sizeof r->error, -errno, "%s: %s", csv,
                         strerror(errno));
    if (csv)
        replay_csv_header(c->csv);
    return 0;
}
