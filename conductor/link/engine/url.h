/* Where an engine is: the URL of its configuration, taken apart. */
#ifndef CONDUCTOR_LINK_ENGINE_URL_H
#define CONDUCTOR_LINK_ENGINE_URL_H

#include <stdbool.h>

#include "base/address.h"

#define ENGINE_URL_MAX 256

struct engine_url {
    bool tls;                       /* https */
    struct address at;              /* where to connect to */
    char name[ADDRESS_HOST_MAX];    /* its host as it stood there */
    char prefix[ENGINE_URL_MAX];    /* of every path: "" or "/v2", no '/' and no
                                       "/v1" at its end */
    char authority[ENGINE_URL_MAX]; /* as it stood there, for Host */
};

/*
 * Reads "http://host[:port][/path]" or https://, where the port is 80 or 443
 * unless given. User names, queries and fragments are refused.
 *   text  NUL-terminated.
 * Returns NULL with *out written; or what is wrong, static, with *out
 * untouched.
 */
[[nodiscard]] const char *engine_url_parse(const char *text,
                                           struct engine_url *out);

/* Where the path of a URL begins to be one of OpenAI's API that requests are
 * sent to, as in "http://h/v1/completions"; NULL: it does not end so. */
const char *engine_url_endpoint(const char *text);

#endif
