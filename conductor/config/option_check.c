/* Whether the value of one option is right. */
#include <ctype.h>
#include <jansson.h>
#include <stddef.h>
#include <string.h>

#include "base/address.h"
#include "conductor/config/internal.h"
#include "conductor/config/policy_text.h"
#include "conductor/http/url.h"

const char *option_check_optional(const char *text)
{
    struct address a;

    return *text && address_parse(text, &a)
               ? "HOST:PORT with a port from 0 to 65535, or empty"
               : NULL;
}

const char *option_check_address(const char *text)
{
    struct address a;

    return address_parse(text, &a) ? "HOST:PORT with a port from 0 to 65535"
                                   : NULL;
}

const char *option_check_name(const char *text)
{
    json_t *json = json_string(text); /* NULL if it is no UTF-8 */
    bool ok = json;

    json_decref(json);
    for (const char *c = text; ok && *c; c++)
        ok = !iscntrl((unsigned char)*c);
    return ok ? NULL : "printable text in UTF-8";
}

const char *option_check_header(const char *text)
{
    static const char *const taken[] = {"accept",
                                        "accept-encoding",
                                        "authorization",
                                        "connection",
                                        "content-encoding",
                                        "content-length",
                                        "content-type",
                                        "cookie",
                                        "date",
                                        "expect",
                                        "host",
                                        "keep-alive",
                                        "origin",
                                        "proxy-authenticate",
                                        "proxy-authorization",
                                        "proxy-connection",
                                        "te",
                                        "traceparent",
                                        "trailer",
                                        "transfer-encoding",
                                        "upgrade",
                                        "x-dynamo-session-id",
                                        "x-request-id",
                                        "x-session-id",
                                        "x-slo-tpot-ms",
                                        "x-slo-ttft-ms"};

    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        if (strcmp(text, taken[i]) == 0)
            return "the name of a header that the conductor does not use "
                   "otherwise, or empty";
    for (const char *c = text; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') ||
              *c == '-' || *c == '_'))
            return "the name of a header in lower case, or empty";
    return NULL;
}

const char *option_check_otlp(const char *text)
{
    struct engine_url url;

    return !*text || (!engine_url_parse(text, &url) && !url.tls)
               ? NULL
               : "http://HOST:PORT/v1/traces of an OTLP receiver, or empty; "
                 "put a collector in front of a receiver that speaks https";
}

/* SCHEME://HOST[:PORT], as browsers write it: no path, no capitals. */
static bool is_origin(const char *at, size_t n)
{
    static const char in_scheme[] = "abcdefghijklmnopqrstuvwxyz0123456789+.-";
    static const char in_host[] = "abcdefghijklmnopqrstuvwxyz0123456789_.-:[]";
    size_t scheme = strspn(at, in_scheme);
    size_t host = scheme + 3;

    return scheme > 0 && host < n && strncmp(at + scheme, "://", 3) == 0 &&
           host + strspn(at + host, in_host) == n;
}

const char *option_check_origins(const char *text)
{
    static const char must[] =
        "origins as browsers write them, https://HOST[:PORT] in lower case and "
        "without a path, separated by commas; or *";

    if (strcmp(text, "*") == 0)
        return NULL;
    for (text += strspn(text, ", "); *text; text += strspn(text, ", ")) {
        size_t n = strcspn(text, ", ");

        if (!is_origin(text, n))
            return must;
        text += n;
    }
    return NULL;
}

/* As option_check_header(), or authorization. */
const char *option_check_tenant_header(const char *text)
{
    return strcmp(text, "authorization") == 0 ? NULL
                                              : option_check_header(text);
}

int config_settings(const char *text, struct policy_settings *settings,
                    char *error, size_t size)
{
    int rc = 0;

    settings->n = 0;
    while (rc == 0 && *text) {
        size_t n = strcspn(text, ",");
        char one[CONFIG_STRING_MAX];

        snprintf(one, sizeof(one), "%.*s", (int)n, text);
        rc = policy_settings_add(settings, one, error, size);
        text += n + (text[n] == ',');
    }
    return rc;
}
