/* The paths, and the function that serves each. */
#ifndef CONDUCTOR_FRONT_ROUTES_H
#define CONDUCTOR_FRONT_ROUTES_H

#include "conductor/front/internal.h"

struct route {
    const char *path; /* the whole path, or its beginning up to a '/' */
    const char *method;
    front_serve_fn *serve;
    enum front_doors doors; /* doors that have it, if there are two */
    enum openai_kind kind;  /* of a completion */
    bool types;             /* it checks the Content-Type itself */
    bool keyed;             /* needs the right to change, even to look */
    /* Appends the JSON of view_written() to `out`. Returns 0 or -ENOMEM. */
    int (*write)(const struct models *models, struct text_buf *out);
};

/* Returns the path behind the call's route. */
struct http_slice routes_rest(const struct front_call *call);

/* routes_find(head, door, allowed): returns the route for path and method at a
 * door (bits of enum front_doors); static. NULL = none: `allowed` has the
 * path's methods, or "" if it has no route. GET takes HEAD, too. */
const struct route *routes_find(const struct http_head *head, unsigned door,
                                char allowed[32]);

/* routes_public(path): returns whether the path is not for operators only. */
bool routes_public(struct http_slice path);

/* routes_set_unknown(call, hint, error): sets a 404 for the path, with `hint`
 * ("" = none) at the end. For an operators' path at the clients' address the
 * message names the option with the right address. Returns -EINVAL. */
int routes_set_unknown(const struct front_call *call, const char *hint,
                       struct openai_error *error);

#endif
