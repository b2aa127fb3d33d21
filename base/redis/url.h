/* The URL of a Redis, as in a configuration or on a command line. */
#ifndef BASE_REDIS_URL_H
#define BASE_REDIS_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/address.h"

#define REDIS_URL_MAX 1024    /* bytes of a URL, with its NUL */
#define REDIS_ADDRESSES_MAX 8 /* addresses in one URL */
#define REDIS_WORD_MAX 256    /* bytes of a user, password or name */

/*
 *   redis://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/DATABASE]
 *   redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT][,...]/NAME[/DATABASE]
 *   rediss://..., rediss+sentinel://...
 *
 * The first form names servers, one of which is the primary; the second names
 * Sentinels that know the primary NAME; rediss uses TLS, if built with it. A
 * password may hold %XX for a byte.
 */
struct redis_url {
    struct address at[REDIS_ADDRESSES_MAX];
    unsigned n;
    char user[REDIS_WORD_MAX];     /* "" = the default user */
    char password[REDIS_WORD_MAX]; /* "" = none */
    char primary[REDIS_WORD_MAX];  /* NAME, if `at` are Sentinels; "" = `at` are
                                      servers */
    unsigned database;
    bool tls;
};

/* redis_url_parse(text, url, err, err_bytes): reads a URL. Returns 0; or
 * -EINVAL with *url untouched and the fault in err, which never quotes the
 * whole text, so that no password shows. */
[[nodiscard]] int redis_url_parse(const char *text, struct redis_url *url,
                                  char *err, size_t err_bytes);

/* redis_url_parse_servers(...): does redis_url_parse(), but refuses
 * Sentinels. */
[[nodiscard]] int redis_url_parse_servers(const char *text,
                                          struct redis_url *url, char *err,
                                          size_t err_bytes);

/* redis_url_shown(text, out, out_bytes): copies the URL with its password
 * hidden, for logs and views. */
void redis_url_shown(const char *text, char *out, size_t out_bytes);

#endif
