/*
 * Which of a client's requests an engine may get, by method and path. Pure.
 *
 * An engine serves more than its clients may use: paths that stop it, empty its
 * cache or load weights. So what goes on is said, and the rest stays here:
 *
 *   /v1/...                  the methods of forward_path_methods(), but for the
 * paths there that change the engine or look into it some paths beside /v1/
 * POST: they ask a model for something
 *
 * Engines decode "%2e", and proxies in front of them join "//" and resolve
 * "..": a path that others could read as another one is refused.
 */
#ifndef CONDUCTOR_FRONT_OPENAI_FORWARD_PATH_H
#define CONDUCTOR_FRONT_OPENAI_FORWARD_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Longer than any path that is known. */
#define FORWARD_PATH_BYTES 64

enum forward_path {
    FORWARD_PATH_OPEN,   /* goes on */
    FORWARD_PATH_OTHER,  /* no path of a model's */
    FORWARD_PATH_CLOSED, /* the engine's own business */
    FORWARD_PATH_ODD,    /* could be read as another path */
    FORWARD_PATH_METHOD, /* it would go on, but not with this method */
};

/* Both slices are borrowed; the path is without its query, and as it came. O(n)
 * of the path. */
enum forward_path forward_path_of(const char *method, size_t n_method,
                                  const char *path, size_t n);

/* A path as engines read it, into text, without a '/' at its end. Returns how
 * many bytes; 0: it is none that is known. */
size_t forward_path_read(const char *path, size_t n,
                         char text[FORWARD_PATH_BYTES]);

/* Whether what engines cache of such a POST is told apart by the salt that is
 * set in it, or nothing is cached. Of other paths tenants would find each
 * other's prompts. */
bool forward_path_salted(const char *path, size_t n);

/* What such a path takes, as Allow has it; static. */
const char *forward_path_methods(const char *path, size_t n);

/* The id of the answer that a path is about, as of /v1/responses/ID/cancel;
 * NULL and 0: of none. It points into the path. */
const char *forward_path_kept(const char *path, size_t n, size_t *n_id);

/* What a request of a tenant's, which has a key, is about. */
enum forward_about {
    FORWARD_ABOUT_PROMPT, /* nothing that engines keep, by its path */
    FORWARD_ABOUT_KEPT,   /* an answer, of forward_path_kept() */
    FORWARD_ABOUT_LIST,   /* a list of what engines keep, of all tenants */
    FORWARD_ABOUT_THING   /* anything else: nothing of this tenant's */
};

/* For a request that goes on (FORWARD_PATH_OPEN). */
enum forward_about forward_path_about(const char *method, size_t n_method,
                                      const char *path, size_t n);

/* Whether such a request asks for what the engine keeps, and no model for
 * anything: it has no body, or is no POST. */
bool forward_path_looks(const char *method, size_t n_method, size_t n_body);

#endif
