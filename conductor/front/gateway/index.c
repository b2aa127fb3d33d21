/*
 * POST /query and /query_by_hash: how much of a prompt each instance holds. The
 * answer has the shape of Mooncake's documentation; with ?shape=instances, and
 * for msgpack, one with all members of Mooncake as built and of Dynamo.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/gateway/state.h"

enum shape { SHAPE_TENANTS, SHAPE_INSTANCES };

/* The ranks of one instance: at[0 .. n). */
struct group {
    const struct service_holding *at;
    size_t n;
};

struct answer {
    struct service_holdings held; /* of the tenant, by instance and rank */
    const char *tenant;
    uint32_t step; /* counts are rounded down to multiples of this, tokens */
};

static int read_shape(const struct front_call *call, enum shape *shape,
                      struct openai_error *error)
{
    struct http_slice query = call->head->query;

    *shape = index_takes_msgpack(call) ? SHAPE_INSTANCES : SHAPE_TENANTS;
    if (query.n == 0 || http_is(query, "?"))
        return 0;
    if (http_is(query, "?shape=instances"))
        *shape = SHAPE_INSTANCES;
    else if (http_is(query, "?shape=tenants"))
        *shape = SHAPE_TENANTS;
    else {
        openai_error_set(error, 400, "invalid_value", "shape",
                         "shape: \"%.*s\": must be ?shape=tenants or "
                         "?shape=instances",
                         query.n < 60 ? (int)query.n : 60, query.at);
        return -EINVAL;
    }
    return 0;
}

static int by_instance(const void *a, const void *b)
{
    const struct service_holding *x = a, *y = b;
    struct who p = who_of(x->name, x->rank), q = who_of(y->name, y->rank);
    int order = strcmp(p.instance, q.instance);

    return order ? order : p.rank - q.rank;
}

/* Keeps holdings of the tenant and, if the question names one, of its
 * instance. */
static void keep(struct answer *a, const struct question *q)
{
    size_t n = 0;

    for (size_t i = 0; i < a->held.n; i++) {
        struct service_holding *h = &a->held.at[i];
        struct who who = who_of(h->name, h->rank);

        if (strcmp(who.tenant, a->tenant) != 0 ||
            (*q->instance && strcmp(who.instance, q->instance) != 0))
            continue;
        h->rank = who.rank;
        h->device -= h->device % a->step;
        h->host -= h->host % a->step;
        h->all -= h->all % a->step;
        if (h->all)
            a->held.at[n++] = *h;
    }
    a->held.n = n;
    if (n > 1)
        qsort(a->held.at, n, sizeof(*a->held.at), by_instance);
}

/* Returns the next instance from *at on, and moves *at past it. */
static struct group next(const struct answer *a, size_t *at)
{
    struct group g = {.at = &a->held.at[*at]};
    struct who first;

    if (*at == a->held.n)
        return g;
    first = who_of(g.at->name, 0);
    while (*at < a->held.n) {
        struct who who = who_of(a->held.at[*at].name, 0);

        if (strcmp(who.instance, first.instance) != 0)
            break;
        ++*at;
        g.n++;
    }
    return g;
}

static uint32_t count(const struct answer *a)
{
    uint32_t n = 0;

    for (size_t at = 0; next(a, &at).n;)
        n++;
    return n;
}

/* Writes each rank's tokens on the device. */
static void put_ranks(struct packed *p, struct group g)
{
    char rank[16];

    packed_map(p, (uint32_t)g.n);
    for (size_t i = 0; i < g.n; i++) {
        snprintf(rank, sizeof(rank), "%d", g.at[i].rank);
        packed_number_of(p, rank, g.at[i].device);
    }
    packed_map_end(p);
}

static void put_instance(struct packed *p, struct group g, enum shape shape)
{
    bool upper = shape == SHAPE_TENANTS;
    uint32_t device = 0, host = 0, all = 0;

    for (size_t i = 0; i < g.n; i++) {
        device = g.at[i].device > device ? g.at[i].device : device;
        host = g.at[i].host > host ? g.at[i].host : host;
        all = g.at[i].all > all ? g.at[i].all : all;
    }
    packed_key(p, who_of(g.at->name, 0).instance);
    packed_map(p, 5);
    packed_number_of(p, "longest_matched", all);
    packed_number_of(p, upper ? "GPU" : "gpu", device);
    packed_key(p, upper ? "DP" : "dp");
    put_ranks(p, g);
    packed_number_of(p, upper ? "CPU" : "cpu", host);
    packed_number_of(p, upper ? "DISK" : "disk", all);
    packed_map_end(p);
}

static void put_instances(struct packed *p, const struct answer *a,
                          enum shape shape)
{
    struct group g;

    packed_map(p, count(a));
    for (size_t at = 0; (g = next(a, &at)).n;)
        put_instance(p, g, shape);
    packed_map_end(p);
}

static void put_answer(struct packed *p, const struct answer *a,
                       enum shape shape)
{
    struct group g;

    if (shape == SHAPE_TENANTS) {
        packed_map(p, 1);
        packed_key(p, a->tenant);
        put_instances(p, a, shape);
        packed_map_end(p);
        return;
    }
    packed_map(p, 3);
    packed_key(p, "scores");
    packed_map(p, count(a));
    for (size_t at = 0; (g = next(a, &at)).n;) {
        packed_key(p, who_of(g.at->name, 0).instance);
        put_ranks(p, g);
    }
    packed_map_end(p);
    packed_key(p, "frequencies");
    packed_array(p, 0);
    packed_array_end(p);
    packed_key(p, "instances");
    put_instances(p, a, shape);
    packed_map_end(p);
}

/* Returns the adapter that the question names, or that its model is. */
static const char *adapter_of(const struct service *s, const struct question *q)
{
    if (*q->adapter)
        return q->adapter;
    return service_has_adapter(s, q->model) ? q->model : "";
}

static int answer(const struct front_call *call, struct service *s,
                  const struct question *q, enum shape shape)
{
    const struct service_question what = {
        .tokens = q->tokens,
        .hashes = q->hashes,
        .n = q->hashes ? q->n_hashes : q->n_tokens,
        .adapter = adapter_of(s, q),
        .salt = q->salt,
    };
    struct answer a = {
        .tenant = who_tenant(q),
        .step = q->block_tokens > 0 ? (uint32_t)q->block_tokens : 1,
    };
    struct text_buf out;

    if (service_ask_index(s, &what, &a.held))
        return -ENOMEM;
    keep(&a, q);
    struct packed p = index_begin(call, &out);
    put_answer(&p, &a, shape);
    index_reply(call, &p);
    service_holdings_fini(&a.held);
    return 0;
}

static void serve(const struct front_call *call, enum question_path path)
{
    struct openai_error error;
    struct question q;
    struct service *s;
    enum shape shape;

    if (read_shape(call, &shape, &error)) {
        index_refuse(call, &error);
        return;
    }
    if (index_read(call, path, &q))
        return;
    s = index_find(call, &q);
    if (s && answer(call, s, &q, shape)) {
        endpoint_set_no_memory(&error);
        index_refuse(call, &error);
    }
    question_fini(&q);
}

void index_query(const struct front_call *call)
{
    serve(call, QUESTION_TOKENS);
}

void index_query_by_hash(const struct front_call *call)
{
    serve(call, QUESTION_HASHES);
}
