/* Views: models, health, readiness, why a request went where it went, where
 * native workers have blocks, and how many shall have them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "conductor/front/chain.h"
#include "conductor/front/openai/reply.h"
#include "conductor/front/routes.h"
#include "conductor/json/text_buf.h"

/* Limit on /v1/models: some thousand names, of several models. */
#define MODELS_BYTES (16u << 20)

void view_no_memory(struct http_conn *conn)
{
    http_refuse(conn, 500, "out_of_memory", NULL, "out of memory");
}

static void reply_json(const struct front_call *call, struct text_buf *buf)
{
    if (buf->error)
        view_no_memory(call->conn);
    else
        http_reply(call->conn, 200, "application/json", buf->data, buf->len);
    text_buf_fini(buf);
}

/* The card of a model, under one of its other names or, NULL, its own. */
static struct openai_model_card card_of(const struct service *service,
                                        const struct service_name *other)
{
    const struct service_model_info *info = service_model(service);

    return (struct openai_model_card){
        .name = other ? other->name : info->name,
        .parent = other && other->adapter ? info->name : NULL,
        .created_s = info->created_s,
        .vocab = info->vocab,
        .window_tokens = info->window_tokens,
        .block_tokens = info->block_tokens,
        .policy = info->policy,
        .engines = other ? other->n_engines : info->n_engines};
}

/* Returns the first of a model's other names from *i on that an engine has now,
 * and moves *i past it; NULL = no more. */
static const struct service_name *next_name(const struct service *service,
                                            size_t *i)
{
    const struct service_name *name;

    while ((name = service_name_at(service, (*i)++)))
        if (name->n_engines > 0)
            return name;
    return NULL;
}

void view_models(const struct front_call *call)
{
    const struct service *s = models_first(call->front->models);
    const char *comma = "";
    struct text_buf buf;

    text_buf_init(&buf, MODELS_BYTES);
    text_buf_puts(&buf, "{\"object\":\"list\",\"data\":[");
    for (; s; s = service_next(s), comma = ",") {
        struct openai_model_card card = card_of(s, NULL);
        const struct service_name *name;
        size_t i = 0;

        text_buf_puts(&buf, comma);
        openai_model_write(&card, &buf);
        while ((name = next_name(s, &i))) {
            card = card_of(s, name);
            text_buf_puts(&buf, ",");
            openai_model_write(&card, &buf);
        }
    }
    text_buf_puts(&buf, "]}");
    reply_json(call, &buf);
}

/* Adds a name to the list of n bytes in text, if that leaves room for "and
 * others". Returns the new n; size: there was no room, and the list is
 * complete. */
static size_t add_name(char *text, size_t size, size_t n, const char *name)
{
    if (n == size)
        return n;
    if (n && n + strlen(name) + sizeof(", \"\" and others") > size) {
        snprintf(text + n, size - n, " and others");
        return size;
    }
    return n + (size_t)snprintf(text + n, size - n, "%s\"%s\"", n ? ", " : "",
                                name);
}

void front_models(const struct models *models, char *text, size_t size)
{
    const struct service *first = models_first(models), *s;
    size_t n = 0;

    snprintf(text, size, "no model");
    for (s = first; s; s = service_next(s))
        n = add_name(text, size, n, service_model(s)->name);
    for (s = first; s; s = service_next(s)) {
        const struct service_name *name;
        size_t i = 0;

        while (n < size && (name = next_name(s, &i)))
            n = add_name(text, size, n, name->name);
    }
    n = strlen(text);
    if (models_untold(models) > 0)
        snprintf(text + n, size - n,
                 "; engines that have not told theirs yet: %zu",
                 models_untold(models));
}

void view_model(const struct front_call *call)
{
    struct http_slice at = routes_rest(call);
    const struct models *all = call->front->models;
    struct text_buf buf;
    char name[256], models[300];

    (void)http_unescape(at.at, at.n, name, sizeof(name));
    const struct service *s = models_find(all, name, strlen(name));
    const struct service_name *other = NULL;
    size_t i = 0;
    if (s && strcmp(service_model(s)->name, name) != 0)
        while ((other = next_name(s, &i)) && strcmp(other->name, name) != 0)
            ;
    if (s && (other || strcmp(service_model(s)->name, name) == 0)) {
        const struct openai_model_card card = card_of(s, other);

        text_buf_init(&buf, 65536);
        openai_model_write(&card, &buf);
        reply_json(call, &buf);
        return;
    }
    front_models(all, models, sizeof(models));
    http_refuse(call->conn, 404, "model_not_found", "model",
                "model: \"%.*s%s\": does not exist; this server has %s",
                at.n < 100 ? (int)at.n : 100, at.at, at.n > 100 ? "..." : "",
                models);
}

void view_ready(const struct front_call *call)
{
    const struct service *first = models_first(call->front->models), *s;
    const char *comma = "";
    struct text_buf buf;
    bool yes = false;

    for (s = first; s && !yes; s = service_next(s))
        yes = service_ready(s);
    yes = yes && !call->front->unready;
    text_buf_init(&buf, 1 << 20);
    text_buf_printf(&buf, "{\"ready\":%s,\"models\":{", yes ? "true" : "false");
    for (s = first; s; s = service_next(s), comma = ",") {
        text_buf_member(&buf, comma, service_model(s)->name);
        text_buf_puts(&buf, service_ready(s) ? ":true" : ":false");
    }
    text_buf_puts(&buf, "}}\n");
    http_reply(call->conn, yes ? 200 : 503, "application/json", buf.data,
               buf.len);
    text_buf_fini(&buf);
}

/* Answers with the JSON in buf, or, if rc is not 0, with out of memory; rc
 * -ENOENT, -EBUSY: it was answered. Frees buf. */
static void view_reply(struct http_conn *conn, struct text_buf *buf, int rc)
{
    if (rc == 0)
        http_reply(conn, 200, "application/json", buf->data, buf->len);
    else if (rc != -ENOENT && rc != -EBUSY)
        view_no_memory(conn);
    text_buf_fini(buf);
}

int view_history(const struct models *models, struct text_buf *out)
{
    return models_history(models, HISTORY_1H, out);
}

int view_history_5m(const struct models *models, struct text_buf *out)
{
    return models_history(models, HISTORY_5M, out);
}

int view_history_24h(const struct models *models, struct text_buf *out)
{
    return models_history(models, HISTORY_24H, out);
}

void view_written(const struct front_call *call)
{
    struct text_buf buf;

    if (call->route->keyed && !admin_may_change(call))
        return;
    text_buf_init(&buf, SIZE_MAX);
    view_reply(call->conn, &buf, call->route->write(call->front->models, &buf));
}

/* Reads which blocks the request is about. On false it was answered. */
static bool read_chain(const struct front_call *call, bool copies,
                       struct chain *chain)
{
    struct openai_error error;

    if (chain_read(call->head->query, call->body, call->n, copies, chain,
                   &error) == 0)
        return true;
    http_reply_error(call->conn, &error);
    return false;
}

void view_blocks(const struct front_call *call)
{
    struct text_buf buf;
    struct chain chain;
    int rc;

    if (!read_chain(call, false, &chain))
        return;
    text_buf_init(&buf, SIZE_MAX);
    rc = models_blocks(call->front->models, chain.key, chain.tokens, chain.n,
                       &buf);
    chain_fini(&chain);
    if (rc == -ENOENT)
        http_refuse(call->conn, 404, "no_native_workers", NULL,
                    "this server has no native workers");
    view_reply(call->conn, &buf, rc);
}

void change_replicas(const struct front_call *call)
{
    char peer[HTTP_PEER_BYTES];
    struct text_buf buf;
    struct chain chain;
    int rc;

    if (!admin_may_change(call) || !read_chain(call, true, &chain))
        return;
    text_buf_init(&buf, SIZE_MAX);
    rc = models_replicas(call->front->models, chain.tokens, chain.n,
                         chain.copies, &buf);
    if (rc != -ENOENT && rc != -EBUSY) {
        http_peer(call->conn, peer);
        log_info(
            "%u copies of a prompt of %zu tokens: ordered over /admin by %s",
            chain.copies, chain.n, peer);
    }
    chain_fini(&chain);
    if (rc == -EBUSY)
        http_refuse(call->conn, 409, "another_leads", NULL,
                    "another conductor leads, and only the leader orders "
                    "copies: ask the one with conductor_state_leader 1");
    else if (rc == -ENOENT)
        http_refuse(call->conn, 404, "no_blocks", NULL,
                    "no native worker has a block of this prompt");
    view_reply(call->conn, &buf, rc);
}

/* Returns the request's id within an answer's: without "cmpl-" or
 * "chatcmpl-". */
static const char *in_answers_id(const char *id)
{
    if (strncmp(id, "chatcmpl-", strlen("chatcmpl-")) == 0)
        return id + strlen("chatcmpl-");
    return strncmp(id, "cmpl-", strlen("cmpl-")) == 0 ? id + strlen("cmpl-")
                                                      : id;
}

/* Explains a decision: the path ends in the request's id. */
void view_explain(const struct front_call *call)
{
    struct http_slice id = routes_rest(call);
    struct text_buf buf;
    char text[64] = "";
    int rc = -ENOENT;

    text_buf_init(&buf, SIZE_MAX);
    if (id.n < sizeof(text))
        memcpy(text, id.at, id.n);
    if (*text)
        rc = models_explain(call->front->models, text, &buf);
    if (rc == -ENOENT && *in_answers_id(text))
        rc = models_explain(call->front->models, in_answers_id(text), &buf);
    if (rc == -ENOENT)
        http_refuse(call->conn, 404, "unknown_request", NULL,
                    "request: \"%.*s\": is unknown, or no longer kept",
                    id.n < 40 ? (int)id.n : 40, id.at);
    view_reply(call->conn, &buf, rc);
}
