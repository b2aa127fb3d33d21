/*
 * Token ids for the blocks of a trace, which has only block ids. Equal ids
 * give equal tokens; different ids give different tokens, except with
 * probability vocab_tokens^-block_tokens. Pure and the same on every machine.
 */
#ifndef TRACES_TOKENS_H
#define TRACES_TOKENS_H

#include <stdint.h>

#include "traces/trace.h"

struct trace_token_options {
    uint32_t block_tokens; /* at least 1; trace's block size over the scale */
    uint32_t vocab_tokens; /* at least 1; all token ids are below it */
    uint64_t seed;         /* seeds give different tokens */
};

/*
 * Writes the prompt of `request` (already scaled) into tokens[0 ..
 * input_tokens). A request with too few ids for its length (trace_reader
 * refuses it) repeats its last id. O(tokens).
 */
void trace_tokens(const struct trace_request *request,
                  const struct trace_token_options *options, uint32_t *tokens);

#endif
