/*
 * A query, and behind its line a body, of /admin/blocks and /admin/replicas:
 * read into a key or tokens, or refused with a status and a message.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/chain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good)
        abort();
}

static void read_one(struct http_slice query, const char *body, size_t n,
                     bool copies)
{
    struct openai_error error = {0};
    struct chain c;
    uint32_t sum = 0;
    int rc = chain_read(query, body, n, copies, &c, &error);

    if (rc) {
        check(rc == -EINVAL && error.http_status == 400 && *error.message &&
              *error.code && !c.tokens);
        return;
    }
    check(copies ? c.copies >= 1 && c.copies <= CHAIN_COPIES_MAX && c.n > 0
                 : c.key != 0 || c.tokens);
    for (size_t i = 0; i < c.n; i++)
        sum += c.tokens[i];
    check(c.n > 0 || sum == 0);
    chain_fini(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    const char *end;
    size_t n;

    if (!text)
        return 0;
    memcpy(text, data, size);
    end = memchr(text, '\n', size);
    n = end ? (size_t)(end - text) : size;
    for (int copies = 0; copies < 2; copies++)
        read_one((struct http_slice){text, n}, end ? end + 1 : "",
                 end ? size - n - 1 : 0, copies);
    free(text);
    return 0;
}
