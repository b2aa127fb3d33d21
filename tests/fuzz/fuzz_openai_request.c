/* Any bytes as a request body, and as an HTTP head and a chunked body. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/request.h"
#include "conductor/http/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is accepted keeps the promises of the header. */
static void check_request(const struct openai_request *r,
                          const struct openai_model *model)
{
    if (r->n_prompts < 1 || r->max_tokens < 1)
        abort();
    for (size_t i = 0; i < r->n_prompts; i++) {
        size_t n = r->offsets[i + 1] - r->offsets[i];

        if (n < 1 || n + r->max_tokens > model->window_tokens)
            abort();
        for (size_t k = r->offsets[i]; k < r->offsets[i + 1]; k++)
            if (r->tokens[k] >= model->vocab)
                abort();
    }
}

/* What is refused has a status, a message, and a body that is JSON. */
static void check_error(const struct openai_error *error)
{
    struct text_buf out;
    json_t *tree;

    if (error->http_status < 400 || error->http_status > 499 ||
        !error->message[0])
        abort();
    text_buf_init(&out, 1 << 16);
    openai_error_write(error, &out);
    tree = json_loadb(out.data, out.len, 0, NULL);
    if (out.error || !tree)
        abort();
    json_decref(tree);
    text_buf_fini(&out);
}

static void fuzz_request(enum openai_kind kind, const char *body, size_t n)
{
    const struct openai_model model = {"tiny", 512, 1000};
    const struct openai_limits limits = {8, 64, 4096, 256};
    struct openai_request request;
    struct openai_error error;
    int rc =
        openai_request_parse(kind, body, n, &model, &limits, &request, &error);

    if (rc == 0)
        check_request(&request, &model);
    else if (rc == -EINVAL)
        check_error(&error);
    openai_request_fini(&request);
}

/* A head that is kept elsewhere says the same. */
static void check_moved(const struct http_head *head, const char *bytes,
                        size_t n)
{
    struct http_head moved = *head;
    char *copy = malloc(n);

    if (!copy)
        return;
    memcpy(copy, bytes, n);
    http_head_move(&moved, bytes, n, copy);
    for (size_t i = 0; i < head->n_headers; i++) {
        struct http_slice was = head->headers[i].value,
                          is = moved.headers[i].value;

        if (is.at < copy || is.at + is.n > copy + n || is.n != was.n ||
            memcmp(is.at, was.at, is.n) != 0)
            abort();
    }
    free(copy);
}

static void fuzz_http(const char *bytes, size_t n)
{
    struct http_chunked decoder = {0};
    struct http_piece piece;
    struct http_fault fault;
    struct http_head head;
    size_t used = 0, total = 0;
    long head_bytes = http_parse_head(bytes, n, &head, &fault);

    if (head_bytes < 0 && (fault.status < 400 || !fault.message))
        abort();
    if (head_bytes > 0 && (size_t)head_bytes > n)
        abort();
    if (head_bytes > 0)
        check_moved(&head, bytes, (size_t)head_bytes);
    bytes += head_bytes > 0 ? head_bytes : 0;
    n -= head_bytes > 0 ? (size_t)head_bytes : 0;
    while (n && http_chunked_next(&decoder, bytes, n, &used, &piece) == 0) {
        total += piece.n;
        if (used == 0 || used > n ||
            (piece.n && (piece.at < bytes || piece.at + piece.n > bytes + n)))
            abort();
        bytes += used;
        n -= used;
    }
    if (total > 1u << 30)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy;

    if (size == 0)
        return 0;
    copy = malloc(size - 1 ? size - 1 : 1); /* exact, for ASan */
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 3 == 2)
        fuzz_http(copy, size - 1);
    else
        fuzz_request(data[0] % 3 ? OPENAI_CHAT : OPENAI_COMPLETION, copy,
                     size - 1);
    free(copy);
    return 0;
}
