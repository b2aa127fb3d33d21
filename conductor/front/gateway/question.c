/* Bodies of the KV-indexer API. */
#include "conductor/front/gateway/question.h"

#include <errno.h>
#include <stdlib.h>

#include "conductor/front/gateway/question_reader.h"

#define MAX_DEPTH 16
#define MAX_MEMBERS 64

int question_read(enum question_path path, bool msgpack, const char *body,
                  size_t n, struct question *out, struct openai_error *error)
{
    struct question_reader r = {
        .walk = {.p = body,
                 .body = body,
                 .end = body + n,
                 .max_depth = MAX_DEPTH,
                 .max_members = MAX_MEMBERS},
        .path = path,
        .out = out,
        .error = error,
    };
    int rc;

    *out = (struct question){.block_tokens = -1, .rank = -1};
    rc = msgpack ? question_read_msgpack(&r, body, n) : question_read_json(&r);
    if (rc == 0 && path == QUESTION_TOKENS && !out->tokens)
        rc = question_refuse(&r, "missing", "token_ids", "missing");
    if (rc == 0 && path == QUESTION_HASHES && !out->hashes)
        rc = question_refuse(&r, "missing", "seq_hashes", "missing");
    if (rc == 0 && *out->adapter_id)
        rc = question_refuse(&r, "unsupported", "lora_id", "must be lora_name");
    if (rc)
        question_fini(out);
    return rc;
}

void question_fini(struct question *q)
{
    free(q->tokens);
    free(q->hashes);
    q->tokens = NULL;
    q->hashes = NULL;
}
