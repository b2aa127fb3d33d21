/* The parts of an engine's URL in the configuration. */
#ifndef CONDUCTOR_HTTP_URL_H
#define CONDUCTOR_HTTP_URL_H

#include <stdbool.h>

#include "base/address.h"

#define ENGINE_URL_MAX 256

struct engine_url {
    bool tls;                    /* https */
    struct address at;           /* where to connect to */
    char name[ADDRESS_HOST_MAX]; /* host as written */
    char prefix[ENGINE_URL_MAX]; /* put before every path: "" or "/v2", without
                                    '/' or "/v1" at its end */
    char authority[ENGINE_URL_MAX]; /* as written, for Host */
};

/*
 * Reads "http://host[:port][/path]" or https://, where the port is 80 or 443
 * unless given. User names, queries and fragments are refused.
 *   text  NUL-terminated.
 * Returns NULL with *out written; or the fault, static, with *out untouched.
 */
[[nodiscard]] const char *engine_url_parse(const char *text,
                                           struct engine_url *out);

/* Orders two URLs by the server and the prefix that they lead to, whichever way
 * they are spelled: returns 0 if they are the same, else below or above 0. */
int engine_url_compare(const struct engine_url *a, const struct engine_url *b);

/* Returns where in a URL the path of an OpenAI endpoint begins, if it ends in
 * one, as in "http://h/v1/completions"; NULL = it does not. */
const char *engine_url_endpoint(const char *text);

#endif
