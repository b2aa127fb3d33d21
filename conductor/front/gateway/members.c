/*
 * POST /register and /unregister: instances whose KV events the index shall
 * follow, or no longer. They become engines as by /admin, with its protection,
 * named INSTANCE|TENANT|RANK; without a url they get no requests.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "conductor/front/gateway/state.h"

#define ENTRY_BYTES 8192

static int refuse(struct openai_error *error, const char *reason,
                  const char *field, const char *why)
{
    openai_error_set(error, 400, reason, field, "%s: %s", field, why);
    return -EINVAL;
}

/* An entry's rank r publishes at its port + r, so the port must be above r. */
static int check_port(const struct question *q, const char *name,
                      const char *endpoint, struct openai_error *error)
{
    const char *port = strrchr(endpoint, ':');
    char text[QUESTION_TEXT_BYTES + 64];

    if (q->rank <= 0 || !port || strtol(port + 1, NULL, 10) > q->rank)
        return 0;
    snprintf(text, sizeof(text), "\"%.100s\": must have a port above %d",
             endpoint, (int)q->rank);
    return refuse(error, "invalid_value", name, text);
}

static int check(const struct question *q, struct openai_error *error)
{
    char text[QUESTION_TEXT_BYTES + 64];

    if (!*q->model)
        return refuse(error, "missing", "modelname", "missing");
    if (!*q->endpoint)
        return refuse(error, "missing", "endpoint", "missing");
    if (*q->type && strcasecmp(q->type, "vllm") != 0 &&
        strcasecmp(q->type, "sglang") != 0) {
        snprintf(text, sizeof(text),
                 "\"%.60s\": must be vLLM or SGLang; stores are named in the "
                 "configuration",
                 q->type);
        return refuse(error, "unsupported", "type", text);
    }
    if (*q->salt)
        return refuse(error, "unsupported", "additionalsalt",
                      "must be empty: KV events carry the salt of their "
                      "blocks; send cache_salt with a query");
    if (check_port(q, "endpoint", q->endpoint, error))
        return -EINVAL;
    return check_port(q, "replay_endpoint", q->replay, error);
}

static void put(struct packed *p, const char *name, const char *text)
{
    if (*text)
        packed_text_of(p, name, text);
}

/* Writes the equivalent entry of the configuration. */
static void write_entry(const struct question *q, const char *name,
                        struct text_buf *out)
{
    struct packed p = {.out = out};
    char at[QUESTION_TEXT_BYTES];
    int rank = q->rank > 0 ? (int)q->rank : 0;
    bool sglang = strcasecmp(q->type, "sglang") == 0;

    packed_map(&p, 0);
    packed_text_of(&p, "name", name);
    packed_text_of(&p, "kind", sglang ? "sglang" : "vllm");
    packed_text_of(&p, "model", q->model);
    put(&p, "url", q->url);
    index_shift(q->endpoint, -rank, at);
    packed_text_of(&p, "kv_events", at);
    index_shift(q->replay, -rank, at);
    put(&p, "kv_replay", at);
    if (q->block_tokens > 0)
        packed_number_of(&p, "block_tokens", (uint64_t)q->block_tokens);
    if (rank > 0 || (*q->url && q->rank >= 0))
        packed_number_of(&p, "dp_rank", (uint64_t)rank);
    packed_map_end(&p);
}

/* A field's names in an entry and in the question. */
static const struct {
    const char *entry, *question;
} fields[] = {
    {"kv_events: ", "endpoint"},      {"kv_replay: ", "replay_endpoint"},
    {"block_tokens: ", "block_size"}, {"model: ", "modelname"},
    {"name: ", "instance_id"},        {"url: ", "url"},
    {"dp_rank: ", "dp_rank"},
};

static void set_refused(struct openai_error *error, int rc, const char *why)
{
    const char *reason =
        rc == -EEXIST ? "already_registered" : "invalid_registration";

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (strncmp(why, fields[i].entry, strlen(fields[i].entry)) == 0) {
            openai_error_set(error, rc == -EEXIST ? 409 : 400, reason,
                             fields[i].question, "%s: %s", fields[i].question,
                             why + strlen(fields[i].entry));
            return;
        }
    openai_error_set(error, rc == -EEXIST ? 409 : 400, reason, NULL, "%s", why);
}

struct search {
    const char *name;
    const struct question *q;
    bool same;
};

static void look(void *arg, const struct service_listener *l)
{
    struct search *s = arg;
    char at[QUESTION_TEXT_BYTES], replay[QUESTION_TEXT_BYTES];

    if (strcmp(l->name, s->name) != 0)
        return;
    index_shift(l->endpoint, l->rank, at);
    index_shift(l->replay, l->rank, replay);
    s->same =
        strcmp(at, s->q->endpoint) == 0 && strcmp(replay, s->q->replay) == 0;
}

/* Whether it is registered with the same endpoints: to register it again is not
 * refused. */
static bool is_there(const struct front_call *call, const struct question *q,
                     const char *name)
{
    const struct service *s =
        models_find(call->front->models, q->model, strlen(q->model));
    struct search search = {name, q, false};

    if (s)
        service_listeners(s, look, &search);
    return search.same;
}

static int add(const struct front_call *call, const struct question *q,
               const char *name, struct openai_error *error)
{
    char err[SERVICE_ERROR_BYTES], added[SERVICE_NAME_BYTES];
    struct text_buf entry;
    int rc;

    text_buf_init(&entry, ENTRY_BYTES);
    write_entry(q, name, &entry);
    rc = entry.error ? -ENOMEM
                     : models_add(call->front->models, entry.data, entry.len,
                                  false, added, err);
    text_buf_fini(&entry);
    if (rc == -EEXIST && is_there(call, q, name))
        rc = 0;
    else if (rc == -ENOMEM)
        endpoint_set_no_memory(error);
    else if (rc)
        set_refused(error, rc, err);
    else
        log_info("engine %s: registered by the KV-indexer API", name);
    return rc;
}

void index_register(const struct front_call *call)
{
    char name[SERVICE_NAME_BYTES];
    struct openai_error error;
    struct text_buf out;
    struct question q;

    if (!admin_may_change(call) || index_read(call, QUESTION_REGISTER, &q))
        return;
    if (check(&q, &error) || who_name(&q, name, &error) ||
        add(call, &q, name, &error)) {
        index_refuse(call, &error);
        return;
    }
    struct packed p = index_begin(call, &out);
    packed_map(&p, 2);
    packed_text_of(&p, "status", "registered successfully");
    packed_text_of(&p, "instance_id", q.instance);
    packed_map_end(&p);
    index_reply(call, &p);
}

/* Names to unregister. */
struct leaving {
    const struct question *q;
    char (*names)[SERVICE_NAME_BYTES]; /* (n) */
    uint32_t n;
    bool failed;
};

static void note_leaving(void *arg, const struct service_listener *l)
{
    struct leaving *g = arg;
    struct who who = who_of(l->name, l->rank);

    if (!who.registered || strcmp(who.instance, g->q->instance) != 0 ||
        strcmp(who.tenant, who_tenant(g->q)) != 0 ||
        (g->q->rank >= 0 && who.rank != g->q->rank))
        return;
    void *more = realloc(g->names, (g->n + 1) * sizeof(*g->names));
    if (!more) {
        g->failed = true;
        return;
    }
    g->names = more;
    snprintf(g->names[g->n++], SERVICE_NAME_BYTES, "%s", l->name);
}

static void remove_all(const struct front_call *call, struct leaving *g)
{
    char err[SERVICE_ERROR_BYTES];
    uint32_t n = 0;

    for (uint32_t i = 0; i < g->n; i++) {
        if (models_remove(call->front->models, g->names[i], err))
            continue; /* it is leaving already */
        log_info("engine %s: unregistered by the KV-indexer API", g->names[i]);
        memmove(g->names[n++], g->names[i], SERVICE_NAME_BYTES);
    }
    g->n = n;
}

static void reply_removed(const struct front_call *call,
                          const struct leaving *g)
{
    struct text_buf out;
    struct packed p = index_begin(call, &out);

    packed_map(&p, 2);
    packed_text_of(&p, "status", "unregistered successfully");
    packed_key(&p, "removed_instances");
    packed_array(&p, g->n);
    for (uint32_t i = 0; i < g->n; i++)
        packed_text(&p, g->names[i]);
    packed_array_end(&p);
    packed_map_end(&p);
    index_reply(call, &p);
}

void index_unregister(const struct front_call *call)
{
    const struct service *s;
    char name[SERVICE_NAME_BYTES];
    struct openai_error error;
    struct question q;

    if (!admin_may_change(call) || index_read(call, QUESTION_UNREGISTER, &q))
        return;
    if (who_name(&q, name, &error)) {
        index_refuse(call, &error);
        return;
    }
    s = index_find(call, &q);
    if (!s)
        return;
    struct leaving g = {.q = &q};
    service_listeners(s, note_leaving, &g);
    remove_all(call, &g);
    if (g.failed) {
        endpoint_set_no_memory(&error);
        index_refuse(call, &error);
    } else if (g.n == 0) {
        openai_error_set(&error, 404, "unknown_instance", "instance_id",
                         "instance_id: \"%.60s\": is not registered for tenant "
                         "\"%.60s\" and this rank",
                         q.instance, who_tenant(&q));
        index_refuse(call, &error);
    } else {
        reply_removed(call, &g);
    }
    free(g.names);
}
