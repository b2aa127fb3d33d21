/* /admin/blocks, /admin/replicas and /admin/copies: where blocks of native
 * workers lie, how many are to have them, and what was copied. */
#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conductor/front/internal.h"

#define REPLICAS_MAX 1024u

/* The next member of a query from *at on: its name, and its value as it stands
 * there, empty without one. Returns whether there was one. */
static bool next_member(const char **at, const char *end,
                        struct http_slice *name, struct http_slice *value)
{
    const char *next, *equals;

    while (*at < end && (**at == '?' || **at == '&'))
        (*at)++;
    if (*at == end)
        return false;
    next = memchr(*at, '&', (size_t)(end - *at));
    next = next ? next : end;
    equals = memchr(*at, '=', (size_t)(next - *at));
    *name = (struct http_slice){*at, (size_t)((equals ? equals : next) - *at)};
    *value = equals
                 ? (struct http_slice){equals + 1, (size_t)(next - equals) - 1}
                 : (struct http_slice){next, 0};
    *at = next;
    return true;
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

/* A text, a blank as + or %20: each of its bytes is a token. Returns how many;
 * *out is owned. */
static size_t read_prompt(const char *text, size_t n, uint32_t **out)
{
    char *bytes = calloc(n + 1, 1);
    uint32_t *tokens = malloc((n + 1) * sizeof(*tokens));
    size_t length = 0;

    *out = tokens;
    if (bytes && tokens) {
        for (size_t i = 0; i < n; i++)
            bytes[i] = text[i] == '+' ? ' ' : text[i];
        endpoint_unescape(bytes, n, bytes, n + 1);
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

/* What the query asks by. Returns its place in `names` and the value, or -1
 * after an answer that says what is wrong. */
static int read_query(const struct front_call *call, const char *const names[3],
                      struct http_slice *value, struct http_slice *copies)
{
    const char *at = call->head->query.at, *end = at + call->head->query.n;
    struct http_slice name, one;
    char cut[40];
    int which = -1;

    while (next_member(&at, end, &name, &one)) {
        int k = 2;

        if (copies && name.n == 6 && memcmp(name.at, "copies", 6) == 0) {
            *copies = one;
            continue;
        }
        while (k >= 0 && (name.n != strlen(names[k]) ||
                          memcmp(name.at, names[k], name.n) != 0))
            k--;
        snprintf(cut, sizeof(cut), "%.*s", (int)(name.n < 39 ? name.n : 39),
                 name.at);
        if (k < 0 || which >= 0) {
            refuse(call, cut, one.at, one.n,
                   k < 0 ? "left out: only key, prompt and tokens are known"
                         : "left out: one of key, prompt and tokens is taken");
            return -1;
        }
        which = k;
        *value = one;
    }
    if (which < 0)
        refuse(call, "key", "", 0,
               "there, or prompt, or tokens: /admin/blocks?key=HEX");
    return which;
}

void view_blocks(const struct front_call *call)
{
    static const char *const names[] = {"key", "prompt", "tokens"};
    struct http_slice value = {NULL, 0};
    int which = read_query(call, names, &value, NULL);
    uint32_t *tokens = NULL;
    uint64_t key = 0;
    size_t n = 0;

    if (which < 0)
        return;
    if (which == 0)
        key = read_key(value.at, value.n);
    else if (which == 1)
        n = read_prompt(value.at, value.n, &tokens);
    else
        n = read_tokens(value.at, value.n, &tokens);
    if (which == 0 && key == 0)
        refuse(call, "key", value.at, value.n,
               "1 to 16 hexadecimal digits, not all 0");
    else if (which == 2 && n == 0)
        refuse(call, "tokens", value.at, value.n,
               "token ids with commas between them");
    else
        reply(call, key, tokens, n);
    free(tokens);
}

static void reply_replicas(const struct front_call *call,
                           const uint32_t *tokens, size_t n, uint32_t copies)
{
    struct evbuffer *buf = evbuffer_new();
    struct openai_error error;
    char peer[HTTP_PEER_BYTES];
    int rc = buf ? models_replicas(call->front->models, tokens, n, copies, buf)
                 : -ENOMEM;

    if (rc != -ENOENT && rc != -EBUSY) {
        http_peer(call->conn, peer);
        log_info("%u copies of a prompt of %zu tokens: told over /admin by %s",
                 copies, n, peer);
        view_reply(call->conn, "application/json", buf, rc);
        return;
    }
    evbuffer_free(buf);
    if (rc == -EBUSY)
        openai_error_set(&error, 409, "another_leads", NULL,
                         "another conductor leads, and it alone orders copies: "
                         "ask it (conductor_state_leader)");
    else
        openai_error_set(&error, 404, "no_blocks", NULL,
                         "no native worker has a block of this prompt");
    http_reply_error(call->conn, &error);
}

/* 1 to REPLICAS_MAX; 0: no such number. */
static uint32_t read_copies(struct http_slice text)
{
    uint32_t n = 0;

    for (size_t i = 0; i < text.n; i++) {
        if (text.at[i] < '0' || text.at[i] > '9' || n > REPLICAS_MAX)
            return 0;
        n = n * 10 + (uint32_t)(text.at[i] - '0');
    }
    return n <= REPLICAS_MAX ? n : 0;
}

void change_replicas(const struct front_call *call)
{
    /* A key alone does not say what stands before it. */
    static const char *const names[] = {"prompt", "prompt", "tokens"};
    struct http_slice value = {NULL, 0}, copies = {"", 0};

    if (!admin_may_change(call))
        return;
    int which = read_query(call, names, &value, &copies);
    if (which < 0)
        return;
    uint32_t *tokens = NULL, n_copies = read_copies(copies);
    size_t n = which == 2 ? read_tokens(value.at, value.n, &tokens)
                          : read_prompt(value.at, value.n, &tokens);
    if (n_copies == 0)
        refuse(call, "copies", copies.at, copies.n, "1 to 1024");
    else if (n == 0)
        refuse(call, names[which], value.at, value.n,
               which == 2 ? "token ids with commas between them" : "a text");
    else
        reply_replicas(call, tokens, n, n_copies);
    free(tokens);
}

void view_copies(const struct front_call *call)
{
    struct evbuffer *buf = evbuffer_new();

    view_reply(call->conn, "application/json", buf,
               buf ? models_copies(call->front->models, buf) : -ENOMEM);
}
