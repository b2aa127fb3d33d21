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
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/secret.h"
#include "conductor/front/routes.h"
#include "conductor/json/text_buf.h"

/* A day: the longest that a drain may take. */
#define LIMIT_MAX_MS 86400000

/* "Bearer KEY" */
static bool has_key(const struct front_call *call, const struct secret *key)
{
    const struct http_slice *value = http_find(call->head, "authorization");
    const size_t n = sizeof("Bearer ") - 1;

    return value && value->n > n && http_begins_fold(*value, "Bearer ") &&
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

    if (key && has_key(call, key))
        return true;
    if (!key && http_is_local(call->conn) && asks_by_address(call->head) &&
        !http_find(call->head, "origin"))
        return true;
    if (key) {
        http_add_header(call->conn, "WWW-Authenticate", "Bearer");
        http_refuse(call->conn, 401, "invalid_admin_key", NULL,
                    "header authorization: must be \"Bearer\" and the key of "
                    "admin_key_file");
    } else {
        http_refuse(call->conn, 403, "admin_forbidden", NULL,
                    "without admin_key_file only clients on this machine may "
                    "change instances, by its address or as localhost, and not "
                    "from a web page: set admin_key_file");
    }
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
    static const struct {
        int rc, status;
        const char *code;
    } all[] = {
        {-ENOENT, 404, "unknown_instance"}, {-EEXIST, 409, "instance_exists"},
        {-EPERM, 403, "not_permitted"},     {-ENOSPC, 409, "too_many_drained"},
        {-EBUSY, 409, "last_of_role"},      {-ESTALE, 409, "another_leads"},
        {-EBADMSG, 400, "invalid_json"},    {0, 400, "invalid_value"}};
    char param[64];
    size_t i = 0;

    while (all[i].rc && all[i].rc != rc)
        i++;
    put_param(param, why);
    http_refuse(call->conn, all[i].status, all[i].code, param, "%s%s",
                rc == -EBADMSG ? "the body isn't valid JSON: " : "", why);
}

/* Answers, and logs, that the instance was changed `how`; or, if rc is not 0,
 * refuses. more: further members of the JSON object. */
static void reply(const struct front_call *call, int rc, const char *why,
                  const char *name, const char *how, int status,
                  const char *state, const char *more)
{
    char peer[HTTP_PEER_BYTES];
    struct text_buf buf;

    if (rc) {
        refuse(call, rc, why);
        return;
    }
    http_peer(call->conn, peer);
    log_info("instance %s: %s over /admin by %s, %s", name, how, peer,
             call->front->options.admin_key ? "with the key" : "without a key");
    text_buf_init(&buf, 4096);
    text_buf_member(&buf, "{\"name\":", name);
    text_buf_member(&buf, ",\"state\":", state);
    text_buf_puts(&buf, more);
    text_buf_puts(&buf, "}\n");
    http_reply(call->conn, status, "application/json", buf.data, buf.len);
    text_buf_fini(&buf);
}

void admin_add(const struct front_call *call)
{
    char name[SERVICE_NAME_BYTES], err[SERVICE_ERROR_BYTES];

    if (!admin_may_change(call))
        return;
    int rc = models_add(call->front->models, call->body, call->n,
                        call->front->options.admin_key, name, err);
    reply(call, rc, err, name, "added", 201, "starting", "");
}

void admin_remove(const struct front_call *call)
{
    struct http_slice at = routes_rest(call);
    char name[SERVICE_NAME_BYTES] = "", err[SERVICE_ERROR_BYTES];

    if (!admin_may_change(call))
        return;
    (void)http_unescape(at.at, at.n, name, sizeof(name));
    int rc = models_remove(call->front->models, name, err);
    reply(call, rc, err, name, "removed", 202, "draining", "");
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
    const size_t n = sizeof("?limit_ms=") - 1;
    int64_t ms = -1;

    *limit_us = 0;
    if (query.n == 0)
        return 0;
    if (query.n <= n + 8 && http_begins(query, "?limit_ms="))
        ms = http_number((struct http_slice){query.at + n, query.n - n},
                         LIMIT_MAX_MS);
    if (ms < 1)
        return error_say(err, SERVICE_ERROR_BYTES, -EINVAL,
                         "query: \"%.*s\": may be ?limit_ms=N, with N from 1 "
                         "to %d",
                         query.n < 100 ? (int)query.n : 100, query.at,
                         LIMIT_MAX_MS);
    *limit_us = 1000 * ms;
    return 0;
}

void admin_instance(const struct front_call *call)
{
    static const struct {
        const char *end, *role, *how;
        bool drains;
    } all[] = {{"/drain", NULL, "drained", true},
               {"/undrain", NULL, "let go on", false},
               {"/role/prefill", "prefill", "told to prefill", false},
               {"/role/decode", "decode", "told to decode", false}};
    const size_t n = sizeof(all) / sizeof(all[0]);
    struct models *models = call->front->models;
    struct http_slice at = routes_rest(call);
    char name[SERVICE_NAME_BYTES] = "", err[SERVICE_ERROR_BYTES];
    const char *state = "";
    int64_t limit_us = 0;
    size_t i = 0;
    int rc = 0;

    if (!admin_may_change(call))
        return;
    while (i < n && !cut(&at, all[i].end))
        i++;
    if (i == n) {
        http_refuse(call->conn, 404, "unknown_path", NULL,
                    "path: \"%.*s\": must end in /drain, /undrain, "
                    "/role/prefill or /role/decode",
                    at.n < 100 ? (int)at.n : 100, at.at);
        return;
    }
    if (all[i].drains)
        rc = read_limit(call->head->query, &limit_us, err);
    (void)http_unescape(at.at, at.n, name, sizeof(name));
    if (rc == 0)
        rc = all[i].role ? models_switch(models, name, all[i].role, &state, err)
                         : models_drain(models, name, all[i].drains, limit_us,
                                        &state, err);
    reply(call, rc, err, name, all[i].how, 200, state,
          all[i].drains ? ",\"drained\":true" : "");
}

void admin_reload(const struct front_call *call)
{
    const struct front_options *o = &call->front->options;
    char err[SERVICE_ERROR_BYTES] =
        "the conductor was started without a configuration file";
    struct text_buf buf;

    if (!admin_may_change(call))
        return;
    text_buf_init(&buf, 16384);
    if (o->reload && o->reload(o->reload_arg, &buf, err) == 0)
        http_reply(call->conn, 200, "application/json", buf.data, buf.len);
    else
        http_refuse(call->conn, 400, "invalid_configuration", NULL,
                    "%s; nothing has changed", err);
    text_buf_fini(&buf);
}
