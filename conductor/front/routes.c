/* The paths, and the function that serves each. */
#include "conductor/front/routes.h"

#include <stdio.h>
#include <string.h>

#include "conductor/front/watch/watch.h"

#define DECISIONS_MAX 16

static int write_instances(const struct models *models, struct text_buf *out)
{
    return models_instances(models, SIZE_MAX, out);
}

/* Decisions show what clients asked for: their route needs the same right as
 * changes. */
static int write_decisions(const struct models *models, struct text_buf *out)
{
    return models_decisions(models, DECISIONS_MAX, out);
}

static const struct route routes[] = {
    {VIEW_EXPLAIN_PATH, "GET", view_explain, .doors = DOOR_ADMIN},
    {"/v1/completions", "POST", completion_serve, .doors = DOOR_PUBLIC,
     .kind = OPENAI_COMPLETION},
    {"/v1/chat/completions", "POST", completion_serve, .doors = DOOR_PUBLIC,
     .kind = OPENAI_CHAT},
    {FORWARD_SCHEDULE_PATH, "POST", schedule_serve, .doors = DOOR_PUBLIC},
    {SCHEDULE_DONE_PATH, "POST", schedule_done, .doors = DOOR_PUBLIC},
    {"/v1/models", "GET", view_models, .doors = DOOR_BOTH},
    {VIEW_MODEL_PATH, "GET", view_model, .doors = DOOR_BOTH},
    {"/health", "GET", view_written, .doors = DOOR_BOTH,
     .write = models_health},
    {"/ready", "GET", view_ready, .doors = DOOR_BOTH},
    {"/metrics", "GET", view_metrics, .doors = DOOR_ADMIN},
    {"/admin/instances", "GET", view_written, .doors = DOOR_ADMIN,
     .write = write_instances},
    {"/admin/instances", "POST", admin_add, .doors = DOOR_ADMIN},
    {"/admin/reload", "POST", admin_reload, .doors = DOOR_ADMIN},
    {"/", "GET", watch_page, .doors = DOOR_ALONE},
    {"/admin", "GET", watch_page, .doors = DOOR_ADMIN},
    {"/admin/events", "GET", watch_events, .doors = DOOR_ADMIN},
    {"/admin/overview", "GET", view_written, .doors = DOOR_ADMIN,
     .write = models_overview},
    {"/admin/history", "GET", view_written, .doors = DOOR_ADMIN,
     .write = view_history},
    {"/admin/history/5m", "GET", view_written, .doors = DOOR_ADMIN,
     .write = view_history_5m},
    {"/admin/history/24h", "GET", view_written, .doors = DOOR_ADMIN,
     .write = view_history_24h},
    {"/admin/decisions", "GET", view_written, .doors = DOOR_ADMIN,
     .keyed = true, .write = write_decisions},
    {"/admin/blocks", "GET", view_blocks, .doors = DOOR_ADMIN},
    {"/admin/blocks", "POST", view_blocks, .doors = DOOR_ADMIN},
    {"/admin/replicas", "POST", change_replicas, .doors = DOOR_ADMIN},
    {"/admin/bookings", "GET", view_written, .doors = DOOR_ADMIN,
     .write = models_bookings},
    {"/admin/copies", "GET", view_written, .doors = DOOR_ADMIN,
     .write = models_copies},
    {"/query", "POST", index_query, .doors = DOOR_ADMIN, .types = true},
    {"/query_by_hash", "POST", index_query_by_hash, .doors = DOOR_ADMIN,
     .types = true},
    {"/register", "POST", index_register, .doors = DOOR_ADMIN, .types = true},
    {"/unregister", "POST", index_unregister, .doors = DOOR_ADMIN,
     .types = true},
    {"/workers", "GET", index_workers, .doors = DOOR_ADMIN},
    {"/services", "GET", index_services, .doors = DOOR_ADMIN},
    {"/global_view", "GET", index_view, .doors = DOOR_ADMIN},
    {ADMIN_INSTANCE_PATH, "POST", admin_instance, .doors = DOOR_ADMIN},
    {ADMIN_INSTANCE_PATH, "DELETE", admin_remove, .doors = DOOR_ADMIN},
};

#define ROUTES (sizeof(routes) / sizeof(routes[0]))

static bool leads(const struct route *route, struct http_slice path)
{
    size_t n = strlen(route->path);
    bool open = n > 1 && route->path[n - 1] == '/';

    /* A path that engines get keeps its '/' at the end. */
    if (!open && path.n == n + 1 && path.at[n] == '/' &&
        route->serve != completion_serve)
        path.n = n;
    return http_is(path, route->path) ||
           (open && path.n > n && http_begins(path, route->path));
}

const struct route *routes_find(const struct http_head *head, unsigned door,
                                char allowed[32])
{
    struct http_slice method = head->method;

    *allowed = '\0';
    if (door == DOOR_ADMIN)
        door |= DOOR_ALONE;
    if (http_is(method, "HEAD"))
        method = (struct http_slice){"GET", 3};
    for (size_t i = 0; i < ROUTES; i++) {
        const struct route *route = &routes[i];

        if ((route->doors & door) == 0 || !leads(route, head->path))
            continue;
        if (http_is(method, route->method))
            return route;
        snprintf(allowed + strlen(allowed), 32 - strlen(allowed), "%s%s%s",
                 *allowed ? ", " : "", route->method,
                 strcmp(route->method, "GET") == 0 ? ", HEAD" : "");
    }
    return NULL;
}

struct http_slice routes_rest(const struct front_call *call)
{
    size_t n = strlen(call->route->path);

    return (struct http_slice){call->head->path.at + n, call->head->path.n - n};
}

bool routes_public(struct http_slice path)
{
    bool known = false;

    for (size_t i = 0; i < ROUTES; i++) {
        if (!leads(&routes[i], path))
            continue;
        if (routes[i].doors & DOOR_PUBLIC)
            return true;
        known = true;
    }
    return !known;
}

int routes_set_unknown(const struct front_call *call, const char *hint,
                       struct openai_error *error)
{
    struct http_slice path = call->head->path;
    bool elsewhere = call->front->admin.server && !routes_public(path);

    return openai_error_set(
        error, 404, "unknown_path", NULL, "path: \"%.*s\": %s%s",
        path.n < 100 ? (int)path.n : 100, path.at,
        elsewhere
            ? "not served at this address for clients: use admin_listen of the "
              "conductor's configuration (conductorctl --address HOST:PORT)"
            : "does not exist",
        elsewhere ? "" : hint);
}
