/* See member.h. */
#include "conductor/front/openai/body/member.h"

#include <stddef.h>
#include <string.h>

#include "conductor/connector/pair.h"

#define STEERS MEMBER_STEERS
#define STEERING(name)                 \
    {                                  \
        name, STEERS, MEMBER_UNREAD, 0 \
    }
#define INNER MEMBER_INNER
#define CARRIES MEMBER_CARRIES
#define SALTS MEMBER_SALTS
#define TOP MEMBER_REFERS_TOP
#define BOTH (MEMBER_REFERS_TOP | MEMBER_REFERS_BELOW)
#define TEXT MEMBER_REFERS_TEXT
#define OBJECT MEMBER_REFERS_OBJECT

static const struct member all[] = {
    {"model", 0, MEMBER_MODEL, 1},
    {"stream", 0, MEMBER_STREAM, 0},
    {"priority", 0, MEMBER_PRIORITY, 0},
    {"previous_response_id", 0, MEMBER_PREVIOUS, 0},
    {"lora_path", 0, MEMBER_ADAPTER, 0}, /* SGLang's */
    {"max_tokens", 0, MEMBER_LIMIT, 0},
    {"max_completion_tokens", 0, MEMBER_LIMIT, 0},
    {"max_output_tokens", 0, MEMBER_LIMIT, 0},
    {"max_new_tokens", 0, MEMBER_LIMIT, 0},

    {"prompt", TOP | OBJECT, MEMBER_UNREAD, 0}, /* or stored, of responses */
    {"messages", 0, MEMBER_UNREAD, 0},
    {"input", 0, MEMBER_UNREAD, 0},
    {"input_ids", 0, MEMBER_UNREAD, 0},
    {"text", 0, MEMBER_UNREAD, 0},
    {"token_ids", 0, MEMBER_TOKEN_IDS, 0},
    {"block_hashes", 0, MEMBER_HASHES, 0},
    {"seq_hashes", 0, MEMBER_HASHES, 0},
    {"block_hash", 0, MEMBER_HASHES, 0},
    {"prompt_tokens", 0, MEMBER_PROMPT_TOKENS, 0},
    {"block_size", 0, MEMBER_BLOCK_TOKENS, 0},

    {"cache_salt", SALTS, MEMBER_CACHE_SALT, 0},
    {"extra_key", SALTS, MEMBER_EXTRA_KEY, 0},
    {"tools", SALTS, MEMBER_UNREAD, 3},
    {"chat_template", SALTS, MEMBER_UNREAD, 4},
    {"chat_template_kwargs", SALTS | MEMBER_DATA, MEMBER_UNREAD, 5},
    {"instructions", SALTS, MEMBER_UNREAD, 0},
    {"system", SALTS, MEMBER_UNREAD, 0},
    {"add_generation_prompt", 0, MEMBER_UNREAD, 6},
    {"continue_final_message", 0, MEMBER_UNREAD, 7},
    {"mm_processor_kwargs", 0, MEMBER_UNREAD, 8},
    {"add_special_tokens", 0, MEMBER_UNREAD, 9},

    {"n", MEMBER_ONE, MEMBER_UNREAD, 0},
    {"best_of", MEMBER_ONE, MEMBER_UNREAD, 0},
    {"echo", MEMBER_OFF, MEMBER_UNREAD, 0},
    {"use_beam_search", MEMBER_OFF, MEMBER_UNREAD, 0},
    {"prompt_logprobs", MEMBER_OFF, MEMBER_UNREAD, 0},

    /* Members of pairs: a vLLM ends on parameters of another prompt;
     * SGLang's say where its engines meet, and name ranks */
    PAIR_MEMBERS(STEERING),
    {"ec_transfer_params", STEERS, MEMBER_UNREAD, 0},
    {"decode_tp_size", STEERS, MEMBER_UNREAD, 0},
    {"data_parallel_rank", STEERS, MEMBER_UNREAD, 0},
    {"routed_dp_rank", STEERS, MEMBER_UNREAD, 0},
    {"disagg_prefill_dp_rank", STEERS, MEMBER_UNREAD, 0},
    /* members of Dynamo's nvext, treated like its headers */
    {"backend_instance_id", INNER, MEMBER_UNREAD, 0},
    {"prefill_worker_id", INNER, MEMBER_UNREAD, 0},
    {"decode_worker_id", INNER, MEMBER_UNREAD, 0},
    {"dp_rank", INNER, MEMBER_UNREAD, 0},
    {"prefill_dp_rank", INNER, MEMBER_UNREAD, 0},
    {"token_data", INNER, MEMBER_UNREAD, 0},
    /* vLLM, SGLang: id under which they keep the answer */
    {"request_id", MEMBER_KEYED, MEMBER_UNREAD, 0},
    {"rid", MEMBER_KEYED, MEMBER_UNREAD, 0},

    {"extra_args", CARRIES, MEMBER_UNREAD, 0},
    {"extra_body", CARRIES, MEMBER_UNREAD, 0},
    {"nvext", CARRIES, MEMBER_UNREAD, 0},
    {"sampling_params", CARRIES, MEMBER_SAMPLING, 0},
    {"vllm_xargs", CARRIES, MEMBER_UNREAD, 0},

    {"conversation", TOP | TEXT | OBJECT, MEMBER_UNREAD, 0},
    {"input_file_id", TOP | TEXT, MEMBER_UNREAD, 0},
    {"training_file", TOP | TEXT, MEMBER_UNREAD, 0},
    {"validation_file", TOP | TEXT, MEMBER_UNREAD, 0},
    {"assistant_id", TOP | TEXT, MEMBER_UNREAD, 0},
    {"thread_id", TOP | TEXT, MEMBER_UNREAD, 0},
    {"container", BOTH | TEXT, MEMBER_UNREAD, 0},
    {"container_id", BOTH | TEXT, MEMBER_UNREAD, 0},
    {"file_id", BOTH | TEXT, MEMBER_UNREAD, 0},
    {"file_ids", BOTH | TEXT, MEMBER_UNREAD, 0},
    {"vector_store_id", BOTH | TEXT, MEMBER_UNREAD, 0},
    {"vector_store_ids", BOTH | TEXT, MEMBER_UNREAD, 0},
    {"id", 0, MEMBER_ID, 0},
    {"type", 0, MEMBER_TYPE, 0},
    {"content", 0, MEMBER_CONTENT, 0},

    {"metadata", MEMBER_DATA, MEMBER_UNREAD, 0},
    {"parameters", MEMBER_DATA, MEMBER_UNREAD, 0},
    {"input_schema", MEMBER_DATA, MEMBER_UNREAD, 0},
    {"schema", MEMBER_DATA, MEMBER_UNREAD, 0},
    {"arguments", MEMBER_DATA, MEMBER_UNREAD, 0},
    {"json_schema", MEMBER_DATA, MEMBER_UNREAD, 0},
};

const struct member *member_find(const char *name)
{
    static const struct member unknown = {"", 0, MEMBER_UNREAD, 0};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (*all[i].name == *name && strcmp(all[i].name, name) == 0)
            return &all[i];
    return &unknown;
}
