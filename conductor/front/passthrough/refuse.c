/* Requests that no engine gets: their path or their model is wrong. */
#include <errno.h>
#include <stdio.h>

#include "conductor/front/openai/body/path.h"
#include "conductor/front/openai/form.h"
#include "conductor/front/passthrough/state.h"
#include "conductor/front/routes.h"

int forward_set_no_model(const struct front_call *call, const char *model,
                         bool of_header, struct openai_error *error)
{
    struct http_slice type = endpoint_type(call->head);
    char models[300], cut[OPENAI_CUT_BYTES];

    if (!models_first(call->front->models) &&
        models_untold(call->front->models) > 0)
        return openai_error_set(
            error, 503, "model_not_known", "model",
            "model: not known yet: no engine has told its model (asked: %zu); "
            "the server's log says why",
            models_untold(call->front->models));
    front_models(call->front->models, models, sizeof(models));
    if (!*model && call->n == 0)
        return openai_error_set(
            error, 400, "missing_parameter", "x-conductor-model",
            "header x-conductor-model: missing: this request names no model "
            "elsewhere, and this server has %s",
            models);
    if (*model)
        return openai_error_set(
            error, 404, "model_not_found",
            of_header ? "x-conductor-model" : "model",
            "%s: \"%s\": does not exist; this server has %s",
            of_header ? "header x-conductor-model" : "model",
            openai_cut(model, cut), models);
    if (form_type_of(type.at, type.n) == FORM_OTHER)
        return endpoint_set_type(
            call->head,
            "application/json or multipart/form-data, which name a model: with "
            "another type, name it in the header x-conductor-model, since this "
            "server has more than one",
            error);
    return openai_error_set(error, 400, "missing_parameter", "model",
                            "model: missing: this server has %s; the header "
                            "x-conductor-model may name it, too",
                            models);
}

/* Why no engine gets such a request. */
static int set_not_for_engines(const struct front_call *call,
                               enum forward_path why,
                               struct openai_error *error)
{
    struct http_slice path = call->head->path, method = call->head->method;
    int n = path.n < 100 ? (int)path.n : 100;

    if (why == FORWARD_PATH_CLOSED)
        return openai_error_set(
            error, 403, "path_not_allowed", "path",
            "path: \"%.*s\": changes or shows a single engine: "
            "send it to the engine itself",
            n, path.at);
    if (why == FORWARD_PATH_ODD)
        return openai_error_set(
            error, 400, "invalid_value", "path",
            "path: \"%.*s\": must have no \"//\", \".\" or \"..\", "
            "no \"#\", and no byte that is escaped twice",
            n, path.at);
    if (why == FORWARD_PATH_METHOD)
        return openai_error_set(
            error, 405, "method_not_allowed", NULL,
            "method: \"%.*s\": must be one of %s for \"%.*s\"",
            method.n < 20 ? (int)method.n : 20, method.at,
            forward_path_methods(path), n, path.at);
    return routes_set_unknown(call,
                              call->front->admin.server
                                  ? ", and is not forwarded to engines: "
                                    "forwarded paths mostly begin with /v1/"
                                  : ", and is not forwarded to engines: "
                                    "forwarded paths mostly begin with /v1/; "
                                    "the status page is /admin",
                              error);
}

/* Whether a salt is asked for that engines ignore at this path, so that tenants
 * would share a cache. */
static bool shares(const struct front_call *call)
{
    const struct http_head *head = call->head;
    const char *salt = call->front->options.cache_salt_header;

    return http_is(head->method, "POST") &&
           ((call->terms.name && *call->terms.name) ||
            (salt && *salt && http_find(head, salt))) &&
           !forward_path_salted(head->path);
}

/* The same answer for another tenant's, an unknown or a forgotten id. */
static int set_not_own(const char *param, struct http_slice value,
                       struct openai_error *error)
{
    int n = value.n < 100 ? (int)value.n : 100;

    return openai_error_set(
        error, 404, "not_found", param,
        "%s:%s%.*s not found among the objects of this tenant", param,
        n ? " " : "", n, value.at);
}

static int set_not_own_path(struct http_slice path, struct openai_error *error)
{
    char quoted[110];
    int n = snprintf(quoted, sizeof(quoted), "\"%.*s\"",
                     path.n < 98 ? (int)path.n : 98, path.at);

    return set_not_own("path", (struct http_slice){quoted, (size_t)n}, error);
}

int forward_check_path(const struct front_call *call,
                       struct openai_error *error)
{
    struct http_slice path = call->head->path, method = call->head->method;
    int n = path.n < 100 ? (int)path.n : 100;

    if (!call->terms.name)
        return 0;
    switch (forward_path_about(method, path)) {
    case FORWARD_ABOUT_THING:
        return set_not_own_path(path, error);
    case FORWARD_ABOUT_LIST:
        return openai_error_set(
            error, 403, "path_mixes_tenants", "path",
            "path: \"%.*s\": engines keep the objects of all tenants there "
            "together: ask for an object of this tenant by its id",
            n, path.at);
    case FORWARD_ABOUT_PROMPT:
    case FORWARD_ABOUT_KEPT:
        break;
    }
    return 0;
}

int forward_check_own(const struct front_call *call,
                      const struct service *service,
                      const struct forward_body *body,
                      struct openai_error *error)
{
    struct http_slice path = call->head->path;
    struct http_slice before = body->previous, id = forward_path_kept(path);
    uint64_t owner = call->terms.number;

    if (!call->terms.name)
        return 0;
    if (id.at && !service_keeps(service, owner, id.at, id.n))
        return set_not_own_path(path, error);
    if (body->refers)
        return set_not_own(body->refers, (struct http_slice){"", 0}, error);
    if (before.n && !http_is(before, "null") &&
        (before.n < 2 || *before.at != '"' ||
         !service_keeps(service, owner, before.at + 1, before.n - 2)))
        return set_not_own("previous_response_id", before, error);
    return 0;
}

bool forward_may_pass(const struct front_call *call)
{
    struct http_slice path = call->head->path, method = call->head->method;
    enum forward_path why = forward_path_of(method, path);
    struct openai_error error;

    if (why != FORWARD_PATH_OPEN)
        set_not_for_engines(call, why, &error);
    else if (shares(call))
        openai_error_set(&error, 403, "path_shares_cache", "path",
                         "path: \"%.*s\": engines share cached prompts between "
                         "tenants there: use /v1/chat/completions",
                         path.n < 100 ? (int)path.n : 100, path.at);
    else if (forward_check_path(call, &error) == 0)
        return true;
    if (why == FORWARD_PATH_CLOSED || why == FORWARD_PATH_ODD)
        call->front->paths_refused++;
    if (why == FORWARD_PATH_METHOD)
        http_add_header(call->conn, "Allow", forward_path_methods(path));
    http_reply_error(call->conn, &error);
    return false;
}
