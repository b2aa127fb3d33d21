/* Which paths there are, and who serves them. */
#ifndef CONDUCTOR_FRONT_ROUTES_H
#define CONDUCTOR_FRONT_ROUTES_H

#include "conductor/front/internal.h"

struct route {
    const char *path; /* the whole, or up to its last '/' */
    const char *method;
    front_serve_fn *serve;
    enum front_doors doors; /* that have it, where there are two */
    enum openai_kind kind;
    bool types; /* it looks at the Content-Type itself */
};

/* routes_find(head, door, allowed): the path's route for the method at a door
 * (enum front_doors); static. NULL: none, and `allowed` is what its routes
 * take, or "" where there are none. GET takes HEAD, too. */
const struct route *routes_find(const struct http_head *head, unsigned door,
                                char allowed[32]);

/* routes_public(path): whether clients may have the path: it is none that only
 * operators have. */
bool routes_public(struct http_slice path);

/* routes_set_unknown(call, hint, error): sets 404: nothing is at the path, with
 * `hint` behind that ("": none). Of an operators' path at the clients' address
 * it names the option that has the other one. */
void routes_set_unknown(const struct front_call *call, const char *hint,
                        struct openai_error *error);

#endif
