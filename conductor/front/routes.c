/* The paths, and the function that serves each. */
#include "conductor/front/routes.h"

#include <stdio.h>
#include <string.h>

#include "conductor/front/watch/watch.h"

static const struct route routes[] = {
    {VIEW_EXPLAIN_PATH, "GET", view_explain, DOOR_ADMIN, 0, false},
    {"/v1/completions", "POST", completion_serve, DOOR_PUBLIC,
     OPENAI_COMPLETION, false},
    {"/v1/chat/completions", "POST", completion_serve, DOOR_PUBLIC, OPENAI_CHAT,
     false},
    {FORWARD_SCHEDULE_PATH, "POST", schedule_serve, DOOR_PUBLIC, 0, false},
    {SCHEDULE_DONE_PATH, "POST", schedule_done, DOOR_PUBLIC, 0, false},
    {"/v1/models", "GET", view_models, DOOR_BOTH, 0, false},
    {VIEW_MODEL_PATH, "GET", view_model, DOOR_BOTH, 0, false},
    {"/health", "GET", view_health, DOOR_BOTH, 0, false},
    {"/ready", "GET", view_ready, DOOR_BOTH, 0, false},
    {"/metrics", "GET", view_metrics, DOOR_ADMIN, 0, false},
    {"/admin/instances", "GET", view_instances, DOOR_ADMIN, 0, false},
    {"/admin/instances", "POST", admin_add, DOOR_ADMIN, 0, false},
    {"/admin/reload", "POST", admin_reload, DOOR_ADMIN, 0, false},
    {"/", "GET", watch_page, DOOR_ALONE, 0, false},
    {"/admin", "GET", watch_page, DOOR_ADMIN, 0, false},
    {"/admin/events", "GET", watch_events, DOOR_ADMIN, 0, false},
    {"/admin/overview", "GET", view_overview, DOOR_ADMIN, 0, false},
    {"/admin/history", "GET", view_history, DOOR_ADMIN, 0, false},
    {"/admin/decisions", "GET", view_decisions, DOOR_ADMIN, 0, false},
    {"/admin/blocks", "GET", view_blocks, DOOR_ADMIN, 0, false},
    {"/admin/blocks", "POST", view_blocks, DOOR_ADMIN, 0, false},
    {"/admin/replicas", "POST", change_replicas, DOOR_ADMIN, 0, false},
    {"/admin/bookings", "GET", view_bookings, DOOR_ADMIN, 0, false},
    {"/admin/copies", "GET", view_copies, DOOR_ADMIN, 0, false},
    {"/query", "POST", index_query, DOOR_ADMIN, 0, true},
    {"/query_by_hash", "POST", index_query_by_hash, DOOR_ADMIN, 0, true},
    {"/register", "POST", index_register, DOOR_ADMIN, 0, true},
    {"/unregister", "POST", index_unregister, DOOR_ADMIN, 0, true},
    {"/workers", "GET", index_workers, DOOR_ADMIN, 0, false},
    {"/services", "GET", index_services, DOOR_ADMIN, 0, false},
    {"/global_view", "GET", index_view, DOOR_ADMIN, 0, false},
    {ADMIN_INSTANCE_PATH, "POST", admin_instance, DOOR_ADMIN, 0, false},
    {ADMIN_INSTANCE_PATH, "DELETE", admin_remove, DOOR_ADMIN, 0, false},
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
           (open && path.n > n && memcmp(path.at, route->path, n) == 0);
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

void routes_set_unknown(const struct front_call *call, const char *hint,
                        struct openai_error *error)
{
    struct http_slice path = call->head->path;
    bool elsewhere = call->front->admin.server && !routes_public(path);

    openai_error_set(
        error, 404, "unknown_path", NULL, "path: \"%.*s\": %s%s",
        path.n < 100 ? (int)path.n : 100, path.at,
        elsewhere
            ? "not served at this address for clients: use admin_listen of the "
              "conductor's configuration (conductorctl --address HOST:PORT)"
            : "does not exist",
        elsewhere ? "" : hint);
}
