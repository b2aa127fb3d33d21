/* See draw.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "sim/cluster/json.h"
#include "tools/replay/study/sweep/draw.h"
#include "traces/generate.h"
#include "traces/trace.h"

#define JSON_MAX_BYTES (64 * 1024)
#define NAME_BYTES 40
#define TERM_MAX_US 1e9

/* Reads [least, most], each from min to max. */
static void read_range(struct fields *f, const struct fields_object *o,
                       const char *key, double min, double max,
                       struct sweep_range *range)
{
    double ends[2] = {min, max};
    char expected[80];

    fields_numbers(f, o, key, ends, 2);
    snprintf(expected, sizeof(expected), "[least, most] from %g to %g", min,
             max);
    if (!(ends[0] >= min && ends[0] <= ends[1] && ends[1] <= max))
        fields_refuse_value(f, o, key, expected);
    *range = (struct sweep_range){ends[0], ends[1]};
}

static void read_terms(struct fields *f, const struct fields_object *o,
                       const char *key, double *us, size_t n)
{
    fields_numbers(f, o, key, us, n);
    for (size_t i = 0; f->rc == 0 && i < n; i++)
        if (!(us[i] >= 0.0 && us[i] <= TERM_MAX_US))
            fields_refuse(f, o->path, key, "term %zu: %g us: must be 0 to %g",
                          i, us[i], TERM_MAX_US);
}

static void read_hardware(struct fields *f, const struct fields_object *o,
                          struct sweep_description *d)
{
    struct sweep_hardware *h = &d->hardware[d->n_hardware];

    *h = (struct sweep_hardware){.layers = 0};
    fields_known(f, o,
                 "name layers kv_bytes_per_token prefill_us decode_us "
                 "kv_tokens max_batch step_tokens " BLOCK_TIER_NAMES);
    fields_text(f, o, "name", h->name, sizeof(h->name), NULL);
    h->layers = (uint32_t)fields_integer(f, o, "layers", 1, 10000, NULL);
    h->kv_bytes_per_token =
        fields_integer(f, o, "kv_bytes_per_token", 1, 1 << 30, NULL);
    read_terms(f, o, "prefill_us", h->prefill_us, COST_MODEL_PREFILL_TERMS);
    read_terms(f, o, "decode_us", h->decode_us, COST_MODEL_DECODE_TERMS);
    if (f->rc == 0 && !(h->prefill_us[0] + h->prefill_us[1] > 0.0))
        fields_refuse(f, o->path, "prefill_us", "no cost");
    if (f->rc == 0 && !(h->decode_us[0] + h->decode_us[1] > 0.0))
        fields_refuse(f, o->path, "decode_us", "no cost");
    h->kv_tokens =
        fields_integer(f, o, "kv_tokens", 1, CLUSTER_TOKENS_MAX, NULL);
    h->max_batch =
        (uint32_t)fields_integer(f, o, "max_batch", 1, 1 << 16, NULL);
    h->step_tokens =
        (uint32_t)fields_integer(f, o, "step_tokens", 1, 1 << 30, NULL);
    cluster_read_tiers(f, o, true, h->tiers, NULL);
    d->n_hardware++;
}

/* Reads a file name; it is relative to the description. */
static void read_file(struct fields *f, const struct fields_object *o,
                      struct sweep_trace *t)
{
    const char *slash = strrchr(f->file, '/');
    char name[SWEEP_PATH_BYTES / 2];

    fields_text(f, o, "file", name, sizeof(name), NULL);
    int n = snprintf(t->file, sizeof(t->file), "%.*s%s",
                     slash && name[0] != '/' ? (int)(slash + 1 - f->file) : 0,
                     f->file, name);
    if (n >= (int)sizeof(t->file))
        fields_refuse(f, o->path, "file", "too long");
}

static void read_trace(struct fields *f, const struct fields_object *o,
                       struct sweep_description *d)
{
    struct sweep_trace *t = &d->traces[d->n_traces];
    const int64_t as_it_is = 1;
    bool known = false;

    *t = (struct sweep_trace){.length_scale = 1};
    fields_known(f, o, "name like file length_scale");
    fields_text(f, o, "name", t->name, sizeof(t->name), NULL);
    if (json_object_get(o->json, "file")) {
        if (json_object_get(o->json, "like"))
            fields_refuse(f, o->path, "like", "does not go with \"file\"");
        read_file(f, o, t);
        known = true;
    } else {
        fields_text(f, o, "like", t->like, sizeof(t->like), NULL);
    }
    for (size_t i = 0; !known && trace_workload_facts(i); i++)
        known = strcmp(trace_workload_facts(i)->name, t->like) == 0;
    if (!known)
        fields_refuse_value(f, o, "like", "a workload of `generate`");
    t->length_scale = (uint32_t)fields_integer(f, o, "length_scale", 1,
                                               TRACE_BLOCK_TOKENS, &as_it_is);
    if (f->rc == 0 && TRACE_BLOCK_TOKENS % t->length_scale != 0)
        fields_refuse_value(f, o, "length_scale", "a divisor of 512");
    d->n_traces++;
}

static void read_list(struct fields *f, const struct fields_object *root,
                      const char *key, size_t most,
                      void (*read)(struct fields *,
                                   const struct fields_object *,
                                   struct sweep_description *),
                      struct sweep_description *d)
{
    const json_t *list = json_object_get(root->json, key);
    size_t n = json_array_size(list);
    char expected[64];

    snprintf(expected, sizeof(expected), "an array of 1 to %zu objects", most);
    if (n == 0 || n > most)
        fields_refuse_value(f, root, key, expected);
    for (size_t i = 0; f->rc == 0 && i < n; i++) {
        char name[NAME_BYTES], path[NAME_BYTES + 1];
        struct fields_object one = {json_array_get(list, i), path};

        snprintf(name, sizeof(name), "%s[%zu]", key, i);
        snprintf(path, sizeof(path), "%s.", name);
        if (!json_is_object(one.json))
            fields_refuse_got(f, "", name, "an object", one.json);
        read(f, &one, d);
    }
}

/* Reads the optional fields; without one, no case has its feature. */
static void read_optional(struct fields *f, const struct fields_object *o,
                          struct sweep_description *d)
{
    const double never = 0.0;

    d->asks = fields_number(f, o, "asks", 0, 1, &never);
    if (d->asks > 0)
        read_range(f, o, "max_tokens", 1, 1 << 24, &d->max_tokens);
    d->small = fields_number(f, o, "small_caches", 0, 1, &never);
    if (d->small > 0)
        read_range(f, o, "cache", 1e-4, 100, &d->cache);
    d->mixed = fields_number(f, o, "mixed", 0, 1, &never);
    if (!(d->mixed > 0))
        return;
    read_range(f, o, "mixed_nodes", 0, 1, &d->mixed_nodes);
    read_range(f, o, "mixed_cost", 0.01, 100, &d->mixed_cost);
    read_range(f, o, "mixed_memory", 0.01, 100, &d->mixed_memory);
}

static void read_description(struct fields *f, const struct fields_object *o,
                             void *into)
{
    struct sweep_description *d = into;

    fields_constant(f, o, "format", "conductor-sweep");
    fields_integer(f, o, "version", 1, 1, NULL);
    fields_known(f, o,
                 "format version name about requests nodes balance aggregated "
                 "disks unequal slow_nodes slow_speed link_gbps load errors "
                 "prefill_error_sigma decode_error_sigma slo_ttft_s slo_tbt_s "
                 "asks max_tokens mixed mixed_nodes mixed_cost mixed_memory "
                 "small_caches cache "
                 "hardware traces");
    fields_text(f, o, "name", d->name, sizeof(d->name), NULL);
    read_range(f, o, "requests", 1, SWEEP_REQUESTS_MAX, &d->requests);
    read_range(f, o, "nodes", 2, CLUSTER_SPEEDS_MAX, &d->nodes);
    read_range(f, o, "balance", 0.01, 100, &d->balance);
    read_range(f, o, "link_gbps", 1e-3, 1e6, &d->link_gbps);
    read_range(f, o, "load", 0.01, 100, &d->load);
    read_range(f, o, "slo_ttft_s", 1e-3, 1e6, &d->slo_ttft_s);
    if (json_object_get(o->json, "slo_tbt_s"))
        read_range(f, o, "slo_tbt_s", 1e-4, 1e6, &d->slo_tbt_s);
    read_range(f, o, "prefill_error_sigma", 0, 2, &d->prefill_error_sigma);
    read_range(f, o, "decode_error_sigma", 0, 2, &d->decode_error_sigma);
    read_range(f, o, "slow_nodes", 0, 1, &d->slow_nodes);
    read_range(f, o, "slow_speed", 0.01, 100, &d->slow_speed);
    d->aggregated = fields_number(f, o, "aggregated", 0, 1, NULL);
    d->disks = fields_number(f, o, "disks", 0, 1, NULL);
    d->unequal = fields_number(f, o, "unequal", 0, 1, NULL);
    d->errors = fields_number(f, o, "errors", 0, 1, NULL);
    read_optional(f, o, d);
    read_list(f, o, "hardware", SWEEP_HARDWARE_MAX, read_hardware, d);
    read_list(f, o, "traces", SWEEP_TRACES_MAX, read_trace, d);
}

int sweep_description_parse(const char *text, size_t size, const char *name,
                            struct sweep_description *d,
                            char err[SWEEP_ERROR_BYTES])
{
    struct fields f = {"", name, err, SWEEP_ERROR_BYTES, 0};
    struct sweep_description *read = calloc(1, sizeof(*read));
    int rc = -ENOMEM;

    if (read)
        rc = fields_read(&f, text, size, read_description, read);
    else
        snprintf(err, SWEEP_ERROR_BYTES, "%s: out of memory", name);
    if (rc == 0)
        *d = *read;
    free(read);
    return rc;
}

int sweep_description_load(const char *path, struct sweep_description *d,
                           char err[SWEEP_ERROR_BYTES])
{
    return sweep_description_parse(NULL, JSON_MAX_BYTES, path, d, err);
}

int sweep_description_add_file(struct sweep_description *d, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct sweep_trace *t = &d->traces[d->n_traces];

    if (d->n_traces == SWEEP_TRACES_MAX)
        return -ENOSPC;
    if (strlen(path) >= sizeof(t->file))
        return -ENAMETOOLONG;
    *t = (struct sweep_trace){.length_scale = 1};
    snprintf(t->file, sizeof(t->file), "%s", path);
    snprintf(t->name, sizeof(t->name), "%.60s", slash ? slash + 1 : path);
    d->n_traces++;
    return 0;
}
