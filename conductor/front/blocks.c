/* /admin/blocks and /admin/copies: where blocks of native workers lie, and what
 * was copied ahead of demand. */
#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/internal.h"

/* A member of the query, escaped; NULL: it is not there. */
static const char *find(struct http_slice query, const char *name, size_t *n)
{
    size_t length = strlen(name);
    const char *at = query.at, *end = query.at + query.n;

    while (at < end) {
        const char *next = memchr(at + 1, '&', (size_t)(end - at - 1));

        next = next ? next : end;
        at++; /* the ? or & */
        if ((size_t)(next - at) > length && at[length] == '=' &&
            memcmp(at, name, length) == 0) {
            *n = (size_t)(next - at) - length - 1;
            return at + length + 1;
        }
        at = next;
    }
    return NULL;
}

static void refuse(const struct front_call *call, const char *name,
                   const char *value, size_t n, const char *must)
{
    struct openai_error error;

    openai_error_set(&error, 400, "invalid_value", name,
                     "%s: \"%.*s\": must be %s", name, n < 40 ? (int)n : 40,
                     value, must);
    http_reply_error(call->conn, &error);
}

/* 1 to 16 hexadecimal digits; 0: no such number. */
static uint64_t read_key(const char *text, size_t n)
{
    uint64_t key = 0;

    for (size_t i = 0; i < n; i++) {
        const char *digits = "0123456789abcdefABCDEF";
        const char *digit = memchr(digits, text[i], 22);

        if (!digit || n > 16)
            return 0;
        key = key << 4 | (uint64_t)(digit - digits < 16 ? digit - digits
                                                        : digit - digits - 6);
    }
    return key;
}

/* A text: each of its bytes is a token. Returns how many; *out is owned. */
static size_t read_prompt(const char *text, size_t n, uint32_t **out)
{
    char *bytes = malloc(n + 1);
    uint32_t *tokens = malloc((n + 1) * sizeof(*tokens));
    size_t length = 0;

    *out = tokens;
    if (bytes && tokens) {
        endpoint_unescape(text, n, bytes, n + 1);
        while (length < n && bytes[length]) {
            tokens[length] = (unsigned char)bytes[length];
            length++;
        }
    }
    free(bytes);
    return length;
}

/* Token ids with commas between them. Returns how many, 0 if that is not what
 * it is; *out is owned. */
static size_t read_tokens(const char *text, size_t n, uint32_t **out)
{
    uint32_t *tokens = malloc((n / 2 + 1) * sizeof(*tokens));
    size_t count = 0, digits = 0;
    uint64_t id = 0;

    *out = tokens;
    for (size_t i = 0; tokens && i <= n; i++) {
        if (i < n && text[i] >= '0' && text[i] <= '9' && digits++ < 10) {
            id = id * 10 + (uint64_t)(text[i] - '0');
            continue;
        }
        if ((i < n && text[i] != ',') || digits == 0 || id > UINT32_MAX)
            return 0;
        tokens[count++] = (uint32_t)id;
        digits = 0;
        id = 0;
    }
    return count;
}

static void reply(const struct front_call *call, uint64_t key,
                  const uint32_t *tokens, size_t n)
{
    struct evbuffer *buf = evbuffer_new();
    struct openai_error error;
    int rc =
        buf ? models_blocks(call->front->models, key, tokens, n, buf) : -ENOMEM;

    if (rc != -ENOENT) {
        view_reply(call->conn, "application/json", buf, rc);
        return;
    }
    evbuffer_free(buf);
    openai_error_set(&error, 404, "no_native_workers", NULL,
                     "no model of native workers is served");
    http_reply_error(call->conn, &error);
}

void view_blocks(const struct front_call *call)
{
    static const char *const names[] = {"key", "prompt", "tokens"};
    const char *value = NULL;
    uint32_t *tokens = NULL;
    uint64_t key = 0;
    size_t n = 0, k = 0;

    while (k < 3 && !(value = find(call->head->query, names[k], &n)))
        k++;
    if (!value) {
        refuse(call, "key", "", 0,
               "there, or prompt, or tokens: /admin/blocks?key=HEX");
        return;
    }
    if (k == 0 && (key = read_key(value, n)) == 0) {
        refuse(call, "key", value, n, "1 to 16 hexadecimal digits, not all 0");
        return;
    }
    if (k == 1)
        n = read_prompt(value, n, &tokens);
    if (k == 2) {
        size_t length = n;

        n = read_tokens(value, n, &tokens);
        if (n == 0) {
            free(tokens);
            refuse(call, "tokens", value, length,
                   "token ids with commas between them");
            return;
        }
    }
    reply(call, key, tokens, n);
    free(tokens);
}

void view_copies(const struct front_call *call)
{
    struct evbuffer *buf = evbuffer_new();

    view_reply(call->conn, "application/json", buf,
               buf ? models_copies(call->front->models, buf) : -ENOMEM);
}
