/* Where a Redis is, as a configuration or a command line says it. */
#ifndef BASE_REDIS_URL_H
#define BASE_REDIS_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/address.h"

#define REDIS_URL_MAX 1024    /* bytes of a URL, with its NUL */
#define REDIS_ADDRESSES_MAX 8 /* that one URL may name */
#define REDIS_WORD_MAX 256    /* bytes of a user, password or name */

/*
 *   redis://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/DATABASE]
 *   redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT][,...]/NAME[/DATABASE]
 *   rediss://..., rediss+sentinel://...
 *
 * The first names servers of which one is the primary; the second Sentinels
 * that know the primary called NAME; with rediss both are spoken to with TLS,
 * where this was built with it. A password may hold %XX for a byte.
 */
struct redis_url {
    struct address at[REDIS_ADDRESSES_MAX];
    unsigned n;
    char user[REDIS_WORD_MAX];     /* "": the default one */
    char password[REDIS_WORD_MAX]; /* "": none */
    char primary[REDIS_WORD_MAX];  /* of Sentinels; "": these are servers */
    unsigned database;
    bool tls;
};

/* redis_url_parse(text, url, err, err_bytes): reads it. Returns 0; or -EINVAL
 * with *url untouched and, in err, what is wrong, without the password: the
 * text never goes into a message as a whole. */
[[nodiscard]] int redis_url_parse(const char *text, struct redis_url *url,
                                  char *err, size_t err_bytes);

/* redis_url_parse_servers(...): likewise, for who asks no Sentinels. */
[[nodiscard]] int redis_url_parse_servers(const char *text,
                                          struct redis_url *url, char *err,
                                          size_t err_bytes);

/* redis_url_shown(text, out, out_bytes): the text with the password hidden, for
 * logs and views. */
void redis_url_shown(const char *text, char *out, size_t out_bytes);

#endif
