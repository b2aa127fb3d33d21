/* See url.h. */
#include "base/redis/url.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define PORT 6379
#define SENTINEL_PORT 26379
#define DATABASES 65536

#ifdef CONDUCTOR_REDIS_TLS
static const bool speaks_tls = true;
#else
static const bool speaks_tls = false;
#endif

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static int hex(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c | 0x20) : NULL;

    return at ? (int)(at - digits) : -1;
}

/* Decodes a word of n bytes, with %XX for a byte. Returns false if it is too
 * long, or a %XX is invalid. */
static bool take_word(char *out, const char *text, size_t n)
{
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)text[i];

        if (c == '%') {
            if (n - i < 3 || hex(text[i + 1]) < 0 || hex(text[i + 2]) < 0)
                return false;
            c = hex(text[i + 1]) * 16 + hex(text[i + 2]);
            i += 2;
        }
        if (c == 0 || len + 1 >= REDIS_WORD_MAX)
            return false;
        out[len++] = (char)c;
    }
    out[len] = '\0';
    return true;
}

/* Reads "[USER]:PASSWORD", n bytes. */
static int take_login(struct redis_url *url, const char *text, size_t n,
                      char *err, size_t err_bytes)
{
    const char *colon = memchr(text, ':', n);

    if (!colon)
        return error_say(err, err_bytes, -EINVAL,
                         "before the @ must be [USER]:PASSWORD");
    if (!take_word(url->user, text, (size_t)(colon - text)) ||
        !take_word(url->password, colon + 1, n - (size_t)(colon + 1 - text)))
        return error_say(
            err, err_bytes, -EINVAL,
            "user and password must have at most %d bytes, and %% only in %%XX "
            "other than %%00",
            REDIS_WORD_MAX - 1);
    return 0;
}

/* Reads HOST[:PORT], n bytes. */
static int take_address(struct redis_url *url, const char *text, size_t n,
                        char *err, size_t err_bytes)
{
    char one[ADDRESS_HOST_MAX + 8];
    char with[sizeof(one) + 8];
    bool v6 = n > 0 && text[0] == '[';
    const char *colon = v6 ? memchr(text, ']', n) : memchr(text, ':', n);
    bool has_port = colon && (!v6 || (size_t)(colon + 1 - text) < n);

    if (url->n == REDIS_ADDRESSES_MAX)
        return error_say(err, err_bytes, -EINVAL,
                         "there must be at most %d addresses",
                         REDIS_ADDRESSES_MAX);
    snprintf(one, sizeof(one), "%.*s", (int)(n < 300 ? n : 300), text);
    snprintf(with, sizeof(with), "%s:%d", one,
             *url->primary ? SENTINEL_PORT : PORT);
    if (n >= sizeof(one) ||
        address_parse(has_port ? one : with, &url->at[url->n]))
        return error_say(
            err, err_bytes, -EINVAL,
            "address %u must be HOST or HOST:PORT, with a port from "
            "1 to 65535",
            url->n + 1);
    url->n++;
    return 0;
}

static int take_addresses(struct redis_url *url, const char *text, size_t n,
                          char *err, size_t err_bytes)
{
    for (;;) {
        const char *comma = memchr(text, ',', n);
        size_t len = comma ? (size_t)(comma - text) : n;
        int rc = take_address(url, text, len, err, err_bytes);

        if (rc || !comma)
            return rc;
        text += len + 1;
        n -= len + 1;
    }
}

static int take_database(struct redis_url *url, const char *text, char *err,
                         size_t err_bytes)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long n = strtoul(text, NULL, 10);

    if (text[digits] || digits > 5 || n >= DATABASES)
        return error_say(
            err, err_bytes, -EINVAL,
            "the database after the last / must be a number below %d",
            DATABASES);
    url->database = (unsigned)n;
    return 0;
}

/* Reads the part after the addresses: [/NAME][/DATABASE]. */
static int take_path(struct redis_url *url, const char *path, bool named,
                     char *err, size_t err_bytes)
{
    const char *rest = *path ? path + 1 : path;

    if (named) {
        size_t n = strcspn(rest, "/");

        if (n == 0 || !take_word(url->primary, rest, n))
            return error_say(err, err_bytes, -EINVAL,
                             "/NAME must follow the addresses of Sentinels: "
                             "the primary's name");
        rest += n;
        rest += *rest == '/';
    }
    return *rest ? take_database(url, rest, err, err_bytes) : 0;
}

/* Reads the part after "...://". */
static int take(struct redis_url *url, const char *text, bool named, char *err,
                size_t err_bytes)
{
    const char *at = strrchr(text, '@');
    const char *hosts = at ? at + 1 : text;
    size_t n = strcspn(hosts, "/");
    int rc = 0;

    if (at)
        rc = take_login(url, text, (size_t)(at - text), err, err_bytes);
    if (!rc)
        rc = take_path(url, hosts + n, named, err, err_bytes);
    return rc ? rc : take_addresses(url, hosts, n, err, err_bytes);
}

static int parse(const char *text, bool sentinels, struct redis_url *url,
                 char *err, size_t err_bytes)
{
    struct redis_url parsed = {.tls = begins(text, "rediss")};
    const char *scheme = text + strlen("redis") + parsed.tls;
    bool is_redis = begins(text, "redis");
    bool asks = is_redis && begins(scheme, "+sentinel://");
    bool plain = is_redis && begins(scheme, "://");
    int rc;

    if (strlen(text) >= REDIS_URL_MAX)
        return error_say(err, err_bytes, -EINVAL,
                         "it must have at most %d bytes", REDIS_URL_MAX - 1);
    if (parsed.tls && !speaks_tls)
        return error_say(err, err_bytes, -EINVAL,
                         "rediss:// needs hiredis 1.0 or later, which this "
                         "program was built without: have a local stunnel "
                         "speak TLS, and name its port with redis://");
    if (!plain && !(asks && sentinels))
        return error_say(err, err_bytes, -EINVAL,
                         "it must be redis%s://[:PASSWORD@]HOST:PORT[/DATABASE]"
                         "%s",
                         speaks_tls ? "[s]" : "",
                         sentinels ? " or redis+sentinel://HOST:PORT[,...]/NAME"
                         : asks ? ": name the servers themselves, not Sentinels"
                                : "");
    rc = take(&parsed, strstr(scheme, "://") + 3, asks, err, err_bytes);
    if (!rc)
        *url = parsed;
    return rc;
}

int redis_url_parse(const char *text, struct redis_url *url, char *err,
                    size_t err_bytes)
{
    return parse(text, true, url, err, err_bytes);
}

int redis_url_parse_servers(const char *text, struct redis_url *url, char *err,
                            size_t err_bytes)
{
    return parse(text, false, url, err, err_bytes);
}

void redis_url_shown(const char *text, char *out, size_t out_bytes)
{
    const char *from = strstr(text, "://");
    const char *at = strrchr(text, '@');

    if (!from || !at || at < from)
        snprintf(out, out_bytes, "%s", text);
    else
        snprintf(out, out_bytes, "%.*s***%s", (int)(from + 3 - text), text, at);
}
