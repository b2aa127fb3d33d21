/* GET /workers, as Dynamo's indexer has it; /services and /global_view, as
 * Mooncake's conductor has them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/gateway/state.h"

/* An engine whose KV events the conductor follows. */
struct member {
    struct who who;
    const struct service *service;
    char endpoint[QUESTION_TEXT_BYTES], replay[QUESTION_TEXT_BYTES];
    char state[16], kind[16];
};

struct members {
    struct member *at; /* (n) */
    uint32_t n, room;
    const struct service *service;
    bool failed;
};

static void note(void *arg, const struct service_listener *l)
{
    struct members *all = arg;

    if (all->n == all->room) {
        uint32_t room = all->room ? 2 * all->room : 16;
        void *more = realloc(all->at, room * sizeof(*all->at));

        all->failed = all->failed || !more;
        if (!more)
            return;
        all->at = more;
        all->room = room;
    }
    struct member *m = &all->at[all->n++];
    m->who = who_of(l->name, l->rank);
    m->service = all->service;
    index_shift(l->endpoint, l->rank, m->endpoint);
    index_shift(l->replay, l->rank, m->replay);
    snprintf(m->state, sizeof(m->state), "%s", l->state);
    snprintf(m->kind, sizeof(m->kind), "%s", l->kind);
}

static int by_who(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = strcmp(service_model(x->service)->name,
                       service_model(y->service)->name);

    if (!order)
        order = strcmp(x->who.tenant, y->who.tenant);
    if (!order)
        order = strcmp(x->who.instance, y->who.instance);
    return order ? order : x->who.rank - y->who.rank;
}

/* Collects all of them, in order. False: out of memory, which was answered. */
static bool collect(const struct front_call *call, struct members *all)
{
    struct openai_error error;

    *all = (struct members){0};
    for (struct service *s = models_first(call->front->models); s;
         s = service_next(s)) {
        all->service = s;
        service_listeners(s, note, all);
    }
    if (all->failed) {
        free(all->at);
        endpoint_set_no_memory(&error);
        index_refuse(call, &error);
        return false;
    }
    if (all->n > 1)
        qsort(all->at, all->n, sizeof(*all->at), by_who);
    return true;
}

/* Number of ranks of the instance at i. */
static uint32_t ranks(const struct members *all, uint32_t i)
{
    uint32_t end = i + 1;

    while (end < all->n && all->at[end].service == all->at[i].service &&
           strcmp(all->at[end].who.tenant, all->at[i].who.tenant) == 0 &&
           strcmp(all->at[end].who.instance, all->at[i].who.instance) == 0)
        end++;
    return end - i;
}

/* Writes an id as a number if it is one, as Dynamo's are. */
static void put_id(struct packed *p, const char *id)
{
    packed_key(p, "instance_id");
    if (*id && strlen(id) < 19 && strspn(id, "0123456789") == strlen(id) &&
        (*id != '0' || !id[1]))
        packed_number(p, strtoull(id, NULL, 10));
    else
        packed_text(p, id);
}

static void put_worker(struct packed *p, const struct member *m, uint32_t n)
{
    const struct service_model_info *info = service_model(m->service);
    char rank[16];

    packed_map(p, 8);
    put_id(p, m->who.instance);
    packed_text_of(p, "source", *m->endpoint ? "zmq" : "none");
    packed_text_of(p, "status", "active");
    packed_text_of(p, "model_name", info->name);
    packed_text_of(p, "routing_group", m->who.tenant);
    packed_number_of(p, "block_size", info->block_tokens);
    packed_key(p, "endpoints");
    packed_map(p, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(rank, sizeof(rank), "%d", m[i].who.rank);
        packed_text_of(p, rank, m[i].endpoint);
    }
    packed_map_end(p);
    packed_key(p, "listeners");
    packed_map(p, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(rank, sizeof(rank), "%d", m[i].who.rank);
        packed_key(p, rank);
        packed_map(p, 2);
        packed_text_of(p, "endpoint", m[i].endpoint);
        packed_text_of(p, "status", m[i].state);
        packed_map_end(p);
    }
    packed_map_end(p);
    packed_map_end(p);
}

void index_workers(const struct front_call *call)
{
    struct members all;
    struct text_buf out;
    uint32_t n = 0;

    if (!collect(call, &all))
        return;
    for (uint32_t i = 0; i < all.n; i += ranks(&all, i))
        n++;
    struct packed p = index_begin(call, &out);
    packed_array(&p, n);
    for (uint32_t i = 0; i < all.n; i += ranks(&all, i))
        put_worker(&p, &all.at[i], ranks(&all, i));
    packed_array_end(&p);
    index_reply(call, &p);
    free(all.at);
}

static void put_service(struct packed *p, const struct member *m)
{
    const struct service_model_info *info = service_model(m->service);

    packed_map(p, 9);
    packed_text_of(p, "instance_id", m->who.instance);
    packed_text_of(p, "tenant_id", m->who.tenant);
    packed_number_of(p, "dp_rank", (uint64_t)m->who.rank);
    packed_text_of(p, "type", m->kind);
    packed_text_of(p, "modelname", info->name);
    packed_number_of(p, "block_size", info->block_tokens);
    packed_text_of(p, "endpoint", m->endpoint);
    packed_text_of(p, "replay_endpoint", m->replay);
    packed_text_of(p, "state", m->state);
    packed_map_end(p);
}

void index_services(const struct front_call *call)
{
    struct members all;
    struct text_buf out;

    if (!collect(call, &all))
        return;
    struct packed p = index_begin(call, &out);
    packed_map(&p, 2);
    packed_number_of(&p, "count", all.n);
    packed_key(&p, "services");
    packed_array(&p, all.n);
    for (uint32_t i = 0; i < all.n; i++)
        put_service(&p, &all.at[i]);
    packed_array_end(&p);
    packed_map_end(&p);
    index_reply(call, &p);
    free(all.at);
}

static void count_one(void *arg, const struct service_listener *l)
{
    uint64_t *counts = arg;

    counts[0]++;
    counts[1] += l->blocks;
}

void index_view(const struct front_call *call)
{
    struct service *first = models_first(call->front->models), *s;
    struct text_buf out;
    uint32_t n = 0;

    for (s = first; s; s = service_next(s))
        n++;
    struct packed p = index_begin(call, &out);
    packed_map(&p, 2);
    packed_number_of(&p, "context_count", n);
    packed_key(&p, "contexts");
    packed_array(&p, n);
    for (s = first; s; s = service_next(s)) {
        uint64_t counts[2] = {0};

        service_listeners(s, count_one, counts);
        packed_map(&p, 4);
        packed_text_of(&p, "model", service_model(s)->name);
        packed_number_of(&p, "block_size", service_model(s)->block_tokens);
        packed_number_of(&p, "instances", counts[0]);
        packed_number_of(&p, "blocks", counts[1]);
        packed_map_end(&p);
    }
    packed_array_end(&p);
    packed_map_end(&p);
    index_reply(call, &p);
}
