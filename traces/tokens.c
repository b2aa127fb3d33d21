/* See tokens.h. */
#include "traces/tokens.h"

#include "traces/random.h"

static void block_tokens(uint64_t id, const struct trace_token_options *options,
                         size_t count, uint32_t *tokens)
{
    /* Mixed twice, so that neighbouring ids do not share shifted sequences. */
    uint64_t base = random_mix(random_mix(id) ^ options->seed);

    for (size_t j = 0; j < count; j++) {
        uint64_t high = random_mix(base + j * 0xd1342543de82ef95U) >> 32;

        tokens[j] = (uint32_t)((high * options->vocab_tokens) >> 32);
    }
}

void trace_tokens(const struct trace_request *request,
                  const struct trace_token_options *options, uint32_t *tokens)
{
    size_t left = request->input_tokens;

    for (size_t i = 0; left > 0; i++) {
        size_t last = request->block_count > 0 ? request->block_count - 1 : 0;
        uint64_t id = request->block_count == 0
                          ? 0
                          : request->hash_ids[i < last ? i : last];
        size_t count =
            left < options->block_tokens ? left : options->block_tokens;

        block_tokens(id, options, count, tokens);
        tokens += count;
        left -= count;
    }
}
