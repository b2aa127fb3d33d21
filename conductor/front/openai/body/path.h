/*
 * The requests of clients that an engine may get, by method and path. Pure.
 *
 * An engine serves more than its clients may use: paths that stop it, empty its
 * cache or load weights. So the paths that go on are listed, and the rest stays
 * here:
 *
 *   /v1/...                  the methods of forward_path_methods(), but no
 *                            paths that change the engine or look into it
 *   some paths beside /v1/   POST: they ask a model for something
 *
 * Engines decode "%2e", and proxies in front of them join "//" and resolve
 * "..": a path that others could read as another one is refused.
 */
#ifndef CONDUCTOR_FRONT_OPENAI_BODY_PATH_H
#define CONDUCTOR_FRONT_OPENAI_BODY_PATH_H

#include "conductor/http/parse.h"

/* Longer than any known path. */
#define FORWARD_PATH_BYTES 64

enum forward_path {
    FORWARD_PATH_OPEN,   /* goes on */
    FORWARD_PATH_OTHER,  /* not a path of the API */
    FORWARD_PATH_CLOSED, /* the engine's own business */
    FORWARD_PATH_ODD,    /* could be read as another path */
    FORWARD_PATH_METHOD, /* not with this method */
};

/* Returns whether a request may go on. Both slices are borrowed; the path, here
 * and below, is as it came, without its query. O(n) of the path. */
enum forward_path forward_path_of(struct http_slice method,
                                  struct http_slice path);

/* Writes a path as engines read it to text, without a '/' at its end. Returns
 * it; n 0: too long, or could be read as another path. */
struct http_slice forward_path_read(struct http_slice path,
                                    char text[FORWARD_PATH_BYTES]);

/* Returns whether engines keep apart, by the salt set in it, what they cache of
 * a POST to this path, or cache nothing. At other paths tenants would find each
 * other's prompts. */
bool forward_path_salted(struct http_slice path);

/* Returns the path's methods, as in Allow; static. */
const char *forward_path_methods(struct http_slice path);

/* Returns the id, within the path, of the answer that a path is about, as of
 * /v1/responses/ID/cancel; at NULL = none. */
struct http_slice forward_path_kept(struct http_slice path);

/* The subject of a tenant's request, by its path. */
enum forward_about {
    FORWARD_ABOUT_PROMPT, /* a prompt: nothing that engines keep */
    FORWARD_ABOUT_KEPT,   /* an answer, of forward_path_kept() */
    FORWARD_ABOUT_LIST,   /* a list of what engines keep, of all tenants */
    FORWARD_ABOUT_THING   /* anything else: not this tenant's */
};

/* Returns it for a request that goes on (FORWARD_PATH_OPEN). */
enum forward_about forward_path_about(struct http_slice method,
                                      struct http_slice path);

/* Returns whether a request looks at what the engine keeps, and asks no model:
 * it has no body, or is no POST. */
static inline bool forward_path_looks(struct http_slice method, size_t n_body)
{
    return n_body == 0 || !http_is(method, "POST");
}

#endif
