/* Shared by the endpoints of the KV-indexer API. */
#include "conductor/front/gateway/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ANSWER_BYTES (64u << 20)

struct who who_of(const char *name, int rank)
{
    const char *second = strrchr(name, '|');
    const char *first =
        second ? memrchr(name, '|', (size_t)(second - name)) : NULL;
    struct who who = {.tenant = WHO_TENANT, .rank = rank};
    bool digits = second && second[1] &&
                  strspn(second + 1, "0123456789") == strlen(second + 1);

    if (!first || !digits) {
        snprintf(who.instance, sizeof(who.instance), "%s", name);
        return who;
    }
    snprintf(who.instance, sizeof(who.instance), "%.*s", (int)(first - name),
             name);
    snprintf(who.tenant, sizeof(who.tenant), "%.*s", (int)(second - first - 1),
             first + 1);
    who.rank = atoi(second + 1);
    who.registered = true;
    return who;
}

const char *who_tenant(const struct question *q)
{
    return *q->tenant ? q->tenant : WHO_TENANT;
}

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~' || *text == '|')
            return false;
    return true;
}

int who_name(const struct question *q, char name[SERVICE_NAME_BYTES],
             struct openai_error *error)
{
    const char *bad = !is_plain(q->instance) ? "instance_id"
                      : !is_plain(q->tenant) ? "tenant_id"
                                             : NULL;

    if (!*q->instance) {
        openai_error_set(error, 400, "missing", "instance_id",
                         "instance_id: missing");
        return -EINVAL;
    }
    if (bad) {
        openai_error_set(
            error, 400, "invalid_value", bad,
            "%s: \"%.60s\": must be printable ASCII without blanks and \"|\"",
            bad, bad[0] == 'i' ? q->instance : q->tenant);
        return -EINVAL;
    }
    if (snprintf(name, SERVICE_NAME_BYTES, "%s|%s|%d", q->instance,
                 who_tenant(q),
                 q->rank > 0 ? (int)q->rank : 0) < SERVICE_NAME_BYTES)
        return 0;
    openai_error_set(error, 400, "out_of_range", "instance_id",
                     "instance_id: \"%.60s\": is too long: \"%.60s|..\" must "
                     "be at most %d bytes with tenant_id and dp_rank",
                     q->instance, q->instance, SERVICE_NAME_BYTES - 1);
    return -EINVAL;
}

static bool has_word(const struct http_slice *value, const char *word)
{
    return value && memmem(value->at, value->n, word, strlen(word));
}

bool index_takes_msgpack(const struct front_call *call)
{
    return has_word(http_find(call->head, "content-type"), "msgpack");
}

bool index_gives_msgpack(const struct front_call *call)
{
    const struct http_slice *accept = http_find(call->head, "accept");

    if (has_word(accept, "msgpack"))
        return true;
    return !has_word(accept, "json") && index_takes_msgpack(call);
}

struct packed index_begin(const struct front_call *call, struct text_buf *out)
{
    text_buf_init(out, ANSWER_BYTES);
    return (struct packed){.out = out, .msgpack = index_gives_msgpack(call)};
}

static void send(const struct front_call *call, struct packed *p, int status)
{
    if (!p->msgpack)
        text_buf_puts(p->out, "\n");
    if (p->out->error) {
        struct openai_error error;

        endpoint_set_no_memory(&error);
        http_reply_error(call->conn, &error);
    } else {
        http_reply(call->conn, status,
                   p->msgpack ? "application/msgpack" : "application/json",
                   p->out->data, p->out->len);
    }
    text_buf_fini(p->out);
}

void index_reply(const struct front_call *call, struct packed *p)
{
    send(call, p, 200);
}

void index_refuse(const struct front_call *call,
                  const struct openai_error *error)
{
    struct text_buf out;
    struct packed p = index_begin(call, &out);

    if (!p.msgpack) {
        http_reply_error(call->conn, error);
        return;
    }
    packed_map(&p, *error->param ? 3 : 2);
    packed_text_of(&p, "error", error->message);
    packed_text_of(&p, "reason", error->code);
    if (*error->param)
        packed_text_of(&p, "field", error->param);
    packed_map_end(&p);
    send(call, &p, error->http_status);
}

int index_read(const struct front_call *call, enum question_path path,
               struct question *q)
{
    bool msgpack = index_takes_msgpack(call);
    struct openai_error error;
    int rc = -EINVAL;

    if (!msgpack && !endpoint_is_json(call->head)) {
        endpoint_set_type(call->head, "application/json or application/msgpack",
                          &error);
    } else {
        rc = question_read(path, msgpack, call->body, call->n, q, &error);
    }
    if (rc == -ENOMEM)
        endpoint_set_no_memory(&error);
    if (rc)
        index_refuse(call, &error);
    return rc;
}

struct service *index_find(const struct front_call *call,
                           const struct question *q)
{
    const struct models *models = call->front->models;
    struct service *only = models_first(models), *found;
    struct openai_error error;
    char names[300], cut[OPENAI_CUT_BYTES];

    found = *q->model ? models_find(models, q->model, strlen(q->model))
            : only && !service_next(only) ? only
                                          : NULL;
    if (found)
        return found;
    front_models(models, names, sizeof(names));
    if (*q->model)
        openai_error_set(&error, 404, "unknown_model", "model",
                         "model: \"%s\": does not exist; this server has %s",
                         openai_cut(q->model, cut), names);
    else
        openai_error_set(&error, 400, "missing", "model",
                         "model: missing: this server has %s", names);
    index_refuse(call, &error);
    return NULL;
}

void index_shift(const char *endpoint, int by, char out[QUESTION_TEXT_BYTES])
{
    const char *colon = strrchr(endpoint, ':');
    char *end;
    long port = colon ? strtol(colon + 1, &end, 10) : 0;

    if (!by || port <= 0 || *end)
        snprintf(out, QUESTION_TEXT_BYTES, "%s", endpoint);
    else
        snprintf(out, QUESTION_TEXT_BYTES, "%.*s:%ld", (int)(colon - endpoint),
                 endpoint, port + by);
}
