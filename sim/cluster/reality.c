/* Reads a cluster file's differences between nodes, and between reality and
 * predictions. */
#include <stdio.h>
#include <string.h>

#include "sim/cluster/json.h"

#define PATH_BYTES 64
#define SIGMA_MAX 2.0
#define SPEED_MIN 0.01
#define SPEED_MAX 100.0
#define MAX_TOKENS_MAX (16 << 20)

void cluster_read_tiers(struct fields *f, const struct fields_object *of,
                        bool device, struct cluster_tier *tiers, bool *has)
{
    const double free_reads = 0.0;
    char path[2 * PATH_BYTES];

    for (unsigned t = 0; t < BLOCK_TIERS; t++) {
        const char *name = block_tiers[t].name;

        snprintf(path, sizeof(path), "%s%s.", of->path, name);
        struct fields_object o =
            fields_object(f, of, name, path, !device || t != TIER_DEVICE);

        if (has)
            has[t] = o.json;
        if (!o.json)
            continue;
        fields_known(f, &o, "tokens gbytes_per_s");
        tiers[t].capacity_tokens =
            fields_integer(f, &o, "tokens", 1, CLUSTER_TOKENS_MAX, NULL);
        tiers[t].read_bytes_per_s =
            fields_number(f, &o, "gbytes_per_s", 1e-6, 1e9, &free_reads) * 1e9;
    }
}

static bool read_terms(struct fields *f, const struct fields_object *o,
                       const char *key, double *us, size_t n)
{
    if (!json_object_get(o->json, key))
        return false;
    fields_numbers(f, o, key, us, n);
    for (size_t i = 0; f->rc == 0 && i < n; i++)
        if (!(us[i] >= 0.0 && us[i] <= CLUSTER_TERM_MAX_US))
            fields_refuse(f, o->path, key, "term %zu: %g us: must be 0 to %g",
                          i, us[i], CLUSTER_TERM_MAX_US);
    return true;
}

static void read_group(struct fields *f, const struct fields_object *o,
                       const char *keys, bool coupled, struct cluster_group *g)
{
    const int64_t as_others = 0;

    fields_known(f, o, keys);
    g->nodes =
        (uint32_t)fields_integer(f, o, "nodes", 1, CLUSTER_NODES_MAX, NULL);
    g->has_prefill =
        read_terms(f, o, "prefill_us", g->prefill_us, COST_MODEL_PREFILL_TERMS);
    g->has_decode =
        read_terms(f, o, "decode_us", g->decode_us, COST_MODEL_DECODE_TERMS);
    g->decode_kv_tokens =
        fields_integer(f, o, "kv_tokens", 1, CLUSTER_TOKENS_MAX, &as_others);
    g->decode_max_batch =
        (uint32_t)fields_integer(f, o, "max_batch", 1, 1 << 16, &as_others);
    cluster_read_tiers(f, o, false, g->tiers, g->has_tier);
    if (coupled && g->decode_kv_tokens > 0) {
        g->has_tier[TIER_DEVICE] = true;
        g->tiers[TIER_DEVICE].capacity_tokens = g->decode_kv_tokens;
    }
}

void cluster_read_groups(struct fields *f, const struct fields_object *o,
                         bool decodes, const char *keys, struct cluster *c)
{
    const json_t *list = json_object_get(o->json, "groups");
    uint32_t most =
        decodes ? c->decode_nodes : c->prefill_nodes + c->coupled_nodes;
    uint64_t first = 0;

    if (!list)
        return;
    if (!json_is_array(list) || json_array_size(list) == 0)
        fields_refuse_value(f, o, "groups", "an array of objects");
    for (size_t i = 0; f->rc == 0 && i < json_array_size(list); i++) {
        char name[PATH_BYTES], path[PATH_BYTES + 1];
        struct fields_object one = {json_array_get(list, i), path};
        struct cluster_group *g = &c->groups[c->n_groups];

        if (c->n_groups == CLUSTER_GROUPS_MAX) {
            fields_refuse(f, o->path, "groups", "more than %d",
                          CLUSTER_GROUPS_MAX);
            return;
        }
        snprintf(name, sizeof(name), "%sgroups[%zu]", o->path, i);
        snprintf(path, sizeof(path), "%s.", name);
        if (!json_is_object(one.json))
            fields_refuse_got(f, "", name, "an object", one.json);
        *g = (struct cluster_group){.decodes = decodes,
                                    .first = (uint32_t)first};
        read_group(f, &one, keys, c->coupled_nodes > 0, g);
        first += g->nodes;
        c->n_groups++;
    }
    if (first > most)
        fields_refuse(f, o->path, "groups", "%llu nodes, but there are %lu",
                      (unsigned long long)first, (unsigned long)most);
}

static void read_speeds(struct fields *f, const struct fields_object *root,
                        struct cluster *c)
{
    const json_t *list = json_object_get(root->json, "node_speed");
    uint32_t nodes = cluster_nodes(c);
    size_t n = json_array_size(list);
    char expected[PATH_BYTES];

    if (!list)
        return;
    nodes = nodes < CLUSTER_SPEEDS_MAX ? nodes : CLUSTER_SPEEDS_MAX;
    snprintf(expected, sizeof(expected),
             "an array of 1 to %lu numbers of %g to %g", (unsigned long)nodes,
             SPEED_MIN, SPEED_MAX);
    if (n == 0 || n > nodes) {
        fields_refuse_value(f, root, "node_speed", expected);
        return;
    }
    fields_numbers(f, root, "node_speed", c->reality.node_speed, n);
    for (size_t i = 0; i < n; i++)
        if (!(c->reality.node_speed[i] >= SPEED_MIN &&
              c->reality.node_speed[i] <= SPEED_MAX))
            fields_refuse_value(f, root, "node_speed", expected);
    c->reality.n_speeds = (uint32_t)n;
}

/* Reads "exact", {"fixed": N} or {"times": X}. */
static void read_max_tokens(struct fields *f, const struct fields_object *root,
                            struct cluster *c)
{
    const json_t *value = json_object_get(root->json, "max_tokens");
    const char *text = json_string_value(value);
    struct fields_object o = {(json_t *)value, "max_tokens."};

    if (!value || (text && strcmp(text, "exact") == 0))
        return;
    if (!json_is_object(value) || json_object_size(value) != 1) {
        fields_refuse_value(f, root, "max_tokens",
                            "\"exact\", {\"fixed\": N} or {\"times\": X}");
        return;
    }
    fields_known(f, &o, "fixed times");
    if (json_object_get(value, "fixed"))
        c->reality.max_tokens_fixed =
            (uint32_t)fields_integer(f, &o, "fixed", 1, MAX_TOKENS_MAX, NULL);
    else
        c->reality.max_tokens_times =
            fields_number(f, &o, "times", 1.0, 1e6, NULL);
}

static void read_first_token(struct fields *f, const struct fields_object *root,
                             struct cluster *c)
{
    char at[16];

    fields_text(f, root, "first_token", at, sizeof(at), "prefill");
    c->reality.first_token_at_decode = strcmp(at, "decode") == 0;
    if (!c->reality.first_token_at_decode && strcmp(at, "prefill") != 0)
        fields_refuse_value(f, root, "first_token",
                            "\"prefill\" or \"decode\"");
}

void cluster_read_reality(struct fields *f, const struct fields_object *root,
                          struct cluster *c)
{
    const double none = 0.0;

    c->reality.prefill_error_sigma =
        fields_number(f, root, "prefill_error_sigma", 0.0, SIGMA_MAX, &none);
    c->reality.decode_error_sigma =
        fields_number(f, root, "decode_error_sigma", 0.0, SIGMA_MAX, &none);
    read_speeds(f, root, c);
    c->reality.speeds_unknown = !fields_bool(f, root, "speeds_known", true);
    read_max_tokens(f, root, c);
    read_first_token(f, root, c);
}
