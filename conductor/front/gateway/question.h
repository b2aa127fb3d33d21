/*
 * Bodies of the KV-indexer API, JSON or msgpack: questions to the index, and
 * instances to register or unregister. Pure.
 *
 * Each member has the spellings of Mooncake's conductor, as documented and as
 * built, and of Dynamo's indexer. Members that are null count as missing;
 * unknown ones are refused.
 */
#ifndef CONDUCTOR_FRONT_GATEWAY_QUESTION_H
#define CONDUCTOR_FRONT_GATEWAY_QUESTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/front/openai/error.h"

#define QUESTION_TEXT_BYTES 256

/* The path of the body; bits. */
enum question_path {
    QUESTION_TOKENS = 1,     /* /query */
    QUESTION_HASHES = 2,     /* /query_by_hash */
    QUESTION_REGISTER = 4,   /* /register */
    QUESTION_UNREGISTER = 8, /* /unregister */
};

/* Missing texts are "", missing numbers -1. */
struct question {
    char model[QUESTION_TEXT_BYTES], adapter[QUESTION_TEXT_BYTES],
        salt[QUESTION_TEXT_BYTES], tenant[QUESTION_TEXT_BYTES],
        instance[QUESTION_TEXT_BYTES], endpoint[QUESTION_TEXT_BYTES],
        replay[QUESTION_TEXT_BYTES], type[QUESTION_TEXT_BYTES],
        url[QUESTION_TEXT_BYTES], adapter_id[QUESTION_TEXT_BYTES];
    int64_t block_tokens, rank;
    uint32_t *tokens; /* owned, (n_tokens) */
    uint64_t *hashes; /* owned, (n_hashes) */
    size_t n_tokens, n_hashes;
};

/*
 * Reads body[0 .. n), borrowed. Returns 0 with *out for question_fini();
 * -EINVAL with *error set, its code one of Mooncake's reasons; -ENOMEM. O(n).
 */
[[nodiscard]] int question_read(enum question_path path, bool msgpack,
                                const char *body, size_t n,
                                struct question *out,
                                struct openai_error *error);
void question_fini(struct question *q);

#endif
