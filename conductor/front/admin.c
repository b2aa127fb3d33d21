/*
 * /admin/instances: adds and removes engines, drains instances; and
 * /admin/reload.
 *
 * Changes need the key of admin_key_file, if there is one. Without one they
 * need a connection from this machine, and no browser behind it: a page can
 * make a browser send to addresses that the page cannot read, and a page whose
 * own name resolves to this machine can read, too.
 */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/secret.h"
#include "conductor/front/internal.h"
#include "conductor/http/escape.h"

/* A day: the longest that a drain may take. */
#define LIMIT_MAX_MS 86400000

/* "Bearer KEY" */
static bool has_key(const struct front_call *call, const struct secret *key)
{
    static const char scheme[] = "Bearer ";
    const size_t n = sizeof(scheme) - 1;
    const struct http_slice *value = http_find(call->head, "authorization");

    return value && value->n > n && strncasecmp(value->at, scheme, n) == 0 &&
           secret_is(key, value->at + n, value->n - n);
}

/* Whether the Host is an address or localhost, not a name that a foreign name
 * server could have resolved to this machine. */
static bool asks_by_address(const struct http_head *head)
{
    const struct http_slice *host = http_find(head, "host");
    struct http_slice name;
    size_t n = 0;

    if (!host || host->n == 0 || *host->at == '[')
        return true;
    while (n < host->n && host->at[n] != ':')
        n++;
    name = (struct http_slice){host->at, n};
    while (n && strchr("0123456789.", host->at[n - 1]))
        n--;
    return n == 0 || http_is_fold(name, "localhost");
}

bool admin_may_change(const struct front_call *call)
{
    const struct secret *key = call->front->options.admin_key;
    struct openai_error error;

    if (key && has_key(call, key))
        return true;
    if (!key && http_is_local(call->conn) && asks_by_address(call->head) &&
        !http_find(call->head, "origin"))
        return true;
    if (key) {
        http_add_header(call->conn, "WWW-Authenticate", "Bearer");
        openai_error_set(
            &error, 401, "invalid_admin_key", NULL,
            "header authorization: must be \"Bearer\" and the key of "
            "admin_key_file");
    } else {
        openai_error_set(
            &error, 403, "admin_forbidden", NULL,
            "without admin_key_file only clients on this machine may change "
            "instances, by its address or as localhost, and not from a web "
            "page: set admin_key_file");
    }
    http_reply_error(call->conn, &error);
    return false;
}

/* Messages about a field begin with its name. */
static void put_param(char param[64], const char *message)
{
    size_t n = strspn(message, "abcdefghijklmnopqrstuvwxyz_");

    snprintf(param, 64, "%.*s", message[n] == ':' ? (int)n : 0, message);
}

static void refuse(const struct front_call *call, int rc, const char *why)
{
    struct openai_error error;
    char param[64];
    int status =
        rc == -ENOENT                                                     ? 404
        : rc == -EEXIST || rc == -ENOSPC || rc == -EBUSY || rc == -ESTALE ? 409
        : rc == -EPERM                                                    ? 403
                                                                          : 400;
    const char *code = rc == -ENOENT    ? "unknown_instance"
                       : rc == -EEXIST  ? "instance_exists"
                       : rc == -EPERM   ? "not_permitted"
                       : rc == -ENOSPC  ? "too_many_drained"
                       : rc == -EBUSY   ? "last_of_role"
                       : rc == -ESTALE  ? "another_leads"
                       : rc == -EBADMSG ? "invalid_json"
                                        : "invalid_value";

    put_param(param, why);
    openai_error_set(&error, status, code, param, "%s%s",
                     rc == -EBADMSG ? "the body isn't valid JSON: " : "", why);
    http_reply_error(call->conn, &error);
}

/* more: further members of the JSON object. */
static void reply_state(const struct front_call *call, int status,
                        const char *name, const char *state, const char *more)
{
    struct text_buf buf;

    text_buf_init(&buf, 4096);
    text_buf_puts(&buf, "{\"name\":");
    text_buf_json(&buf, name, strlen(name));
    text_buf_puts(&buf, ",\"state\":\"");
    text_buf_puts(&buf, state);
    text_buf_puts(&buf, "\"");
    text_buf_puts(&buf, more);
    text_buf_puts(&buf, "}\n");
    http_reply(call->conn, status, "application/json", buf.data, buf.len);
    text_buf_fini(&buf);
}

static void log_change(const struct front_call *call, const char *name,
                       const char *how)
{
    char peer[HTTP_PEER_BYTES];

    http_peer(call->conn, peer);
    log_info("instance %s: %s over /admin by %s, %s", name, how, peer,
             call->front->options.admin_key ? "with the key" : "without a key");
}

void admin_add(const struct front_call *call)
{
    char name[SERVICE_NAME_BYTES], err[SERVICE_ERROR_BYTES];
    int rc;

    if (!admin_may_change(call))
        return;
    rc = models_add(call->front->models, call->body, call->n,
                    call->front->options.admin_key, name, err);
    if (rc)
        refuse(call, rc, err);
    else {
        log_change(call, name, "added");
        reply_state(call, 201, name, "starting", "");
    }
}

void admin_remove(const struct front_call *call)
{
    const char *at = call->head->path.at + strlen(ADMIN_INSTANCE_PATH);
    size_t n = call->head->path.n - strlen(ADMIN_INSTANCE_PATH);
    char name[SERVICE_NAME_BYTES] = "", err[SERVICE_ERROR_BYTES];
    int rc;

    if (!admin_may_change(call))
        return;
    http_unescape(at, n, name, sizeof(name));
    rc = models_remove(call->front->models, name, err);
    if (rc)
        refuse(call, rc, err);
    else {
        log_change(call, name, "removed");
        reply_state(call, 202, name, "draining", "");
    }
}

/* Cuts `end` off a path. Returns whether it was there. */
static bool cut(struct http_slice *path, const char *end)
{
    size_t n = strlen(end);

    if (path->n <= n || memcmp(path->at + path->n - n, end, n) != 0)
        return false;
    path->n -= n;
    return true;
}

/* Reads "?limit_ms=N"; 0 = no query. Returns 0 or -EINVAL, with a message. */
static int read_limit(struct http_slice query, int64_t *limit_us,
                      char err[SERVICE_ERROR_BYTES])
{
    static const char name[] = "?limit_ms=";
    const size_t n = sizeof(name) - 1;
    int64_t ms = 0;
    bool ok = query.n > n && query.n <= n + 8 && memcmp(query.at, name, n) == 0;

    *limit_us = 0;
    if (query.n == 0)
        return 0;
    for (size_t i = n; ok && i < query.n; i++) {
        ok = query.at[i] >= '0' && query.at[i] <= '9';
        ms = 10 * ms + (query.at[i] - '0');
    }
    if (!ok || ms < 1 || ms > LIMIT_MAX_MS)
        return error_say(err, SERVICE_ERROR_BYTES, -EINVAL,
                         "query: \"%.*s\": may be ?limit_ms=N, with N from 1 "
                         "to %d",
                         query.n < 100 ? (int)query.n : 100, query.at,
                         LIMIT_MAX_MS);
    *limit_us = 1000 * ms;
    return 0;
}

static void drain(const struct front_call *call, struct http_slice at, bool on)
{
    char name[SERVICE_NAME_BYTES] = "", err[SERVICE_ERROR_BYTES];
    const char *state;
    int64_t limit_us = 0;
    int rc = on ? read_limit(call->head->query, &limit_us, err) : 0;

    http_unescape(at.at, at.n, name, sizeof(name));
    if (rc == 0)
        rc = models_drain(call->front->models, name, on, limit_us, &state, err);
    if (rc)
        refuse(call, rc, err);
    else {
        log_change(call, name, on ? "drained" : "undrained");
        reply_state(call, 200, name, state, on ? ",\"drained\":true" : "");
    }
}

static void switch_role(const struct front_call *call, struct http_slice at,
                        const char *role)
{
    char name[SERVICE_NAME_BYTES] = "", err[SERVICE_ERROR_BYTES];
    const char *state;
    int rc;

    http_unescape(at.at, at.n, name, sizeof(name));
    rc = models_switch(call->front->models, name, role, &state, err);
    if (rc)
        refuse(call, rc, err);
    else {
        log_change(call, name,
                   *role == 'p' ? "told to prefill" : "told to decode");
        reply_state(call, 200, name, state, "");
    }
}

void admin_instance(const struct front_call *call)
{
    const size_t prefix = strlen(ADMIN_INSTANCE_PATH);
    struct http_slice at = {call->head->path.at + prefix,
                            call->head->path.n - prefix};
    struct openai_error error;

    if (!admin_may_change(call))
        return;
    if (cut(&at, "/drain"))
        drain(call, at, true);
    else if (cut(&at, "/undrain"))
        drain(call, at, false);
    else if (cut(&at, "/role/prefill"))
        switch_role(call, at, "prefill");
    else if (cut(&at, "/role/decode"))
        switch_role(call, at, "decode");
    else {
        openai_error_set(&error, 404, "unknown_path", NULL,
                         "path: \"%.*s\": must end in /drain, /undrain, "
                         "/role/prefill or /role/decode",
                         at.n < 100 ? (int)at.n : 100, at.at);
        http_reply_error(call->conn, &error);
    }
}

void admin_reload(const struct front_call *call)
{
    const struct front_options *o = &call->front->options;
    char err[SERVICE_ERROR_BYTES] =
        "the conductor was started without a configuration file";
    struct openai_error error;
    struct text_buf buf;

    if (!admin_may_change(call))
        return;
    text_buf_init(&buf, 16384);
    if (o->reload && o->reload(o->reload_arg, &buf, err) == 0) {
        http_reply(call->conn, 200, "application/json", buf.data, buf.len);
    } else {
        openai_error_set(&error, 400, "invalid_configuration", NULL,
                         "%s; nothing has changed", err);
        http_reply_error(call->conn, &error);
    }
    text_buf_fini(&buf);
}
