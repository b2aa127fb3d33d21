/*
 * Any body of /v1/schedule/done and of the KV-indexer API, JSON or msgpack as
 * its first byte says: it is read, with numbers in their ranges, or refused
 * with a status and a message.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/gateway/question.h"
#include "conductor/front/gateway/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool good)
{
    if (!good)
        abort();
}

static void check_refused(const struct openai_error *error)
{
    check(error->http_status == 400 && *error->message && *error->code);
}

static void report(const char *body, size_t n)
{
    char ticket[SERVICE_TICKET_BYTES];
    struct service_ticket_report r;
    struct openai_error error = {0};

    if (report_read(body, n, ticket, &r, &error)) {
        check_refused(&error);
        return;
    }
    check(memchr(ticket, '\0', sizeof(ticket)) && r.ttft_us >= -1 &&
          r.output_tokens >= -1 && r.prompt_tokens >= -1 &&
          r.cached_tokens >= -1 && r.state <= SERVICE_TICKET_FAILED);
}

/* All of them are summed up, so that each is looked at. */
static uint64_t sum(const struct question *q)
{
    uint64_t all = 0;

    for (size_t i = 0; i < q->n_tokens; i++)
        all += q->tokens[i];
    for (size_t i = 0; i < q->n_hashes; i++)
        all += q->hashes[i];
    return all;
}

static void question(enum question_path path, bool msgpack, const char *body,
                     size_t n)
{
    static volatile uint64_t sink;
    struct question q;
    struct openai_error error = {0};

    if (question_read(path, msgpack, body, n, &q, &error)) {
        check_refused(&error);
        check(!q.tokens && !q.hashes);
        return;
    }
    check(q.n_tokens <= n && q.n_hashes <= n && q.block_tokens <= 1024 &&
          q.rank <= 255 && memchr(q.instance, '\0', sizeof(q.instance)));
    sink = sum(&q);
    (void)sink;
    question_fini(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    const char *body = (const char *)data + 1;
    if (*data % 16 == 15)
        report(body, bytes - 1);
    else
        question((enum question_path)(1 << *data % 4), *data & 4, body,
                 bytes - 1);
    return 0;
}
