/*
 * One message of an engine's KV events, decoded: vLLM's and SGLang's, in both
 * of their encodings (a batch as an array or a map, an event as an array that
 * begins with its tag or as a map that names it). Unknown keys are skipped,
 * unknown tags counted. Pure: bytes in, events out, no I/O.
 *
 * A message is decoded as a whole before its events are used: either all
 * of it is well-formed, or none of it counts.
 */
#ifndef CONDUCTOR_LINK_EVENTS_BATCH_H
#define CONDUCTOR_LINK_EVENTS_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/index/prefix_index.h"
#include "conductor/link/events/unpack.h"

/* Limits of one message. */
#define KV_BATCH_EVENTS_MAX (1u << 16)
#define KV_BATCH_HASHES_MAX (1u << 20)
#define KV_BATCH_TOKENS_MAX (1u << 22)

enum kv_event_kind { KV_STORED, KV_REMOVED, KV_CLEARED };

/* The decoder owns hashes and tokens; texts point into the message. */
struct kv_event {
    enum kv_event_kind kind;
    enum block_tier tier; /* of the event's medium; none named = the device */
    bool has_tier;        /* a known medium was named */
    bool unknown_medium;
    bool has_parent;
    bool windowed; /* of a cache group that keeps only a window of a prompt */
    bool odd;      /* a token is not a number */
    uint16_t part; /* of a store's object: the part of the block, as a digest of
                      its name without the hash */
    uint64_t parent;
    uint64_t groups;        /* bit g: cache group g; group 0 if it names none */
    const uint64_t *hashes; /* (n_hashes) */
    const uint32_t *tokens; /* (n_tokens) */
    const uint64_t *extras; /* (n_hashes): digest of other content (images) that
                               tells blocks of equal tokens apart, 0 = none;
                               NULL = none for all */
    uint32_t n_hashes, n_tokens, block_size;
    struct unpack_text adapter; /* name of the LoRA adapter, n 0 = none */
    struct unpack_text salt;    /* of a prompt's first block, n 0 = none */
    /* For the decoder. */
    size_t first_hash, first_token;
};

struct kv_batch {
    const struct kv_event *events; /* (n_events) */
    uint32_t n_events;
    uint32_t n_unknown; /* events with unknown tags, left out */
    double time_s;      /* when the sender's clock sent it; 0 = unknown */
    bool has_rank;
    uint64_t rank; /* data-parallel */
};

/* The place of a fault in a message, and what was expected there. */
struct kv_batch_error {
    size_t offset;
    const char *expected;
};

struct kv_decoder;

/* Makes a decoder with room for the largest message; untouched room costs
 * nothing. Returns owned, or NULL. kv_decoder_free(NULL) is a no-op. */
[[nodiscard]] struct kv_decoder *kv_decoder_new(void);
void kv_decoder_free(struct kv_decoder *decoder);

/*
 * Decodes a message.
 *   bytes  (n), borrowed as long as the events are used.
 *   batch  written; good until the next call.
 *   error  written if the message is malformed or too large.
 * Returns 0, or -EINVAL. Cost: O(n), nothing is allocated.
 */
[[nodiscard]] int kv_decoder_batch(struct kv_decoder *decoder,
                                   const void *bytes, size_t n,
                                   struct kv_batch *batch,
                                   struct kv_batch_error *error);

#endif
