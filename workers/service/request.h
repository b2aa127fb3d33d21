/* One request inside a worker, from its frame to its last token, and the table
 * that finds it by its id. A request is a prefill, a decode, or both in turn
 * (role both).
 *
 * Requests are used on the worker's loop thread only. The compute thread sees
 * only the segments of its step; while `step.under_way` is set, it may be
 * writing this request's blocks, so they must stay.
 *
 * Invariants:
 *   only request_set_state() changes the state
 *   a request has all the blocks that it will ever need (blocks.n =
 *     blocks.n_needed), or none (blocks.n = 0)
 *   blocks.ids[0 .. n) each carry one pin of this request
 *   blocks.extra[0 .. n_extra) too: the store's copies of blocks that this
 *     request computed itself
 *   blocks.ids[0 .. n_chained) were matched or committed; `tip` is the held
 *     block n_chained - 1 (or the store's copy of it), NONE if n_chained = 0
 *   the KV of tokens [0, position) is complete in the blocks
 *   load.origin[i] != BLOCK_COMPUTED behind position: that block's KV is
 *     complete too
 *   load.n_local + n_fetched + n_disk + n_shared = blocks in front of position
 *     that were not computed */
#ifndef WORKERS_SERVICE_REQUEST_H
#define WORKERS_SERVICE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "proto/message.h"
#include "workers/step/layer_gate.h"
#include "workers/store/kv_store.h"

struct conductor;
struct peer;
struct inbound;
struct push_piece;    /* workers/transfer/push_pieces.c */
struct receive_piece; /* workers/transfer/receive.c */
struct load;          /* workers/load/loader.h */
struct group;         /* workers/pipeline/pipeline.h */

enum request_state {
    REQUEST_WAITING,   /* prefill: in the queue, perhaps still loading */
    REQUEST_PREFILL,   /* in the step loop */
    REQUEST_PUSHING,   /* computed; KV still on its way to the decode worker */
    REQUEST_ANNOUNCED, /* decode: announced, no KV_BEGIN yet */
    REQUEST_KV_WAIT,   /* KV_BEGIN came; waits for room */
    REQUEST_RECEIVING, /* granted; KV arrives */
    REQUEST_READY,     /* waits for a place in the batch */
    REQUEST_DECODE,    /* in the batch */
    REQUEST_ENDED,     /* about to be freed */
};

#define REQUEST_STATES (REQUEST_ENDED + 1)

/* Origin of a block of the prompt. */
enum block_origin {
    BLOCK_COMPUTED = 0, /* computed here, or not there yet */
    BLOCK_FETCHED,      /* from another worker */
    BLOCK_FROM_DISK,
    BLOCK_FROM_SHARED, /* from the shared store */
};

/* The prompt. Tokens and keys are NULL if the request is only decoded here. */
struct request_prompt {
    uint32_t n_tokens;
    uint32_t *tokens;    /* (n_tokens), owned */
    uint64_t *keys;      /* (n_full), owned */
    uint32_t n_full;     /* full blocks */
    uint32_t n_reusable; /* leading full blocks that may be reused: the last
                            token is always computed */
    uint64_t digest;     /* block_key_prompt_digest() */
    bool learns;         /* tokens unknown: a peer sends them for `keys` */
    uint64_t key_seed;   /* with `learns`: seed with which the tokens must give
                            `keys` */
};

/* Blocks of the request's KV. */
struct request_kv {
    uint32_t n_needed; /* blocks that it will ever need */
    uint32_t *ids;     /* (n_needed), owned */
    void **data;       /* (n_needed), owned; address of block ids[i] */
    uint32_t n;
    uint32_t *extra; /* (prompt.n_full), owned; NULL without tokens */
    uint32_t n_extra;
    uint32_t n_chained;
    uint32_t tip;
    bool chain_closed; /* a collision: no further block can be shared */
};

/* Leading blocks of the prompt that the store held at the last
 * request_look(). */
struct request_there {
    uint32_t n;
    uint32_t tip;    /* the last of them */
    uint64_t number; /* allocation number of `tip`; changes if the block is
                        reused */
};

/* The request's turn in the queue. */
struct request_turn {
    uint64_t seq; /* order of arrival */
    int64_t arrival_us;
    int64_t cost_us;     /* predicted prefill time; 0 = not known */
    int64_t deadline_us; /* of its first token */
    bool has_slo; /* the deadline comes from an SLO; else it is implied */
    int64_t expected_us; /* when its loaded blocks arrive, as predicted by the
                            conductor */
    int64_t started_us;
    int64_t stood_us;        /* since started_us, interrupted */
    int64_t stands_since_us; /* start of the current interruption; 0 = not
                                interrupted */
    uint32_t computed;       /* tokens computed in steps that ended */
    int64_t came_us;  /* when the engine was free for it, but its load was late;
                         0 = never */
    int64_t freed_us; /* when it no longer waited for its load */
    struct request *follows; /* earlier request that will compute blocks it
                                lacks; NULL = none */
    int64_t shared_us;       /* part of that request's cost for those blocks */
    bool looks;              /* `follows` is still to be determined */
};

/* The request's part of the running step; step/batch.c. */
struct request_step {
    bool under_way;    /* the compute thread computes it now */
    bool staged;       /* computed in some layers only, so no layer is done */
    uint32_t n_tokens; /* tokens behind its position that the step computes */
    uint32_t segment;  /* index of its segment in the step */
    /* The rest may be computed while loaded layers are still arriving: the
     * next step begins at gate_token and waits at `gate` for each layer. */
    bool gated;
    uint32_t gate_token;
    struct layer_gate gate;
};

/* The load of the request; load/loader.h. */
struct request_load {
    struct load *job;    /* NULL = nothing is or will be loaded */
    bool held_back;      /* computing must wait until its load allows it */
    uint8_t mode;        /* enum load_mode */
    uint32_t from_block; /* first block that the load covers */
    uint8_t *origin;     /* (prompt.n_full + 1), owned: enum block_origin; NULL
                            without tokens */
    uint32_t n_local;    /* blocks found in the store */
    uint32_t n_fetched;
    uint32_t n_disk;
    uint32_t n_shared;
    uint64_t fetch_bytes; /* loaded from other workers, used or not */
    uint64_t disk_bytes;
    uint64_t shared_bytes;
    int64_t us; /* from asking for the first block to the arrival of the last */
    int64_t fetch_us; /* from the request's arrival to the end of its load from
                         other workers */
};

/* KV on its way to the decode worker; transfer/push.c. */
struct request_push {
    char host[MSG_HOST_MAX]; /* decode worker; "" = none */
    uint16_t port;
    struct peer *peer; /* NULL = not begun, all sent, or failed */
    TAILQ_ENTRY(request) link;
    bool failed;
    bool granted;
    uint32_t from_token;  /* start of the range being sent */
    uint32_t end_token;   /* its end; = from_token if no range is chosen */
    uint32_t layer;       /* being sent */
    uint32_t sent_tokens; /* tokens of the range sent in this layer */
    int64_t since_us;     /* when the push was offered; later the time of
                             PREFILL_DONE */
    TAILQ_HEAD(, push_piece)
    pieces; /* begun, not yet taken by the peer */
    uint32_t n_pieces;
};

/* KV arriving from a prefill worker; transfer/receive.c. */
struct request_receive {
    struct inbound *from; /* NULL = no KV_BEGIN yet, or all KV has come */
    TAILQ_ENTRY(request) link;
    uint32_t *next_token; /* (layers), owned: next token of each */
    TAILQ_HEAD(, receive_piece)
    pieces; /* announced by the sender, not read yet */
    uint32_t n_pieces;
};

struct request {
    uint64_t id;
    struct conductor *conductor; /* sender of the request */
    enum request_state state;
    LIST_ENTRY(request) by_id;
    TAILQ_ENTRY(request) link; /* in the list of its state, if any */
    bool dead;                 /* dropped: free it when the running step ends */
    bool broken;               /* an illegal state change: it fails */

    uint32_t max_tokens; /* most tokens of the answer, at least 1 */
    bool decodes_here;   /* the answer's tokens need room in the blocks */
    struct request_prompt prompt;

    uint32_t position;      /* tokens whose KV is in the blocks */
    uint32_t cached_tokens; /* tokens in front of the current run of chunks */
    uint32_t last_token;
    uint32_t n_output; /* tokens of the answer so far */

    struct request_kv blocks;
    struct request_there there;
    struct request_turn turn;
    struct request_step step;
    struct request_load load;
    struct request_push push;
    struct request_receive receive;
    struct group *group; /* group led here that prefills it; NULL = none */
};

TAILQ_HEAD(request_list, request);

#define REQUEST_BUCKETS 1024u

/* Finds requests by id. The callers bound their number. */
struct request_table {
    LIST_HEAD(, request) buckets[REQUEST_BUCKETS];
    uint32_t n;
};

/* Arguments of request_new(). `tokens` (n_tokens) is borrowed and copied;
 * unaligned little-endian, as in a frame; NULL for a request that is only
 * decoded here. */
struct request_spec {
    uint64_t id;
    struct conductor *conductor;
    uint64_t key_seed;
    uint64_t prompt_digest; /* used only without tokens */
    const uint8_t *tokens;
    uint32_t n_tokens;
    uint32_t max_tokens;
    uint32_t block_tokens;
    bool decodes_here;
};

/* Makes a request in state REQUEST_WAITING, or REQUEST_ANNOUNCED without
 * tokens. Returns it owned, or NULL: out of memory. O(tokens). */
[[nodiscard]] struct request *request_new(const struct request_spec *spec);

/* Returns whether a request may change from state `from` to `to`. */
bool request_may_go(enum request_state from, enum request_state to);

/* Brings `r` into state `to`; where request_may_go() does not allow that, it is
 * a bug, and `r` will fail. Only this function changes the state; the caller
 * moves `r` between lists. */
void request_set_state(struct request *r, enum request_state to);

/* Frees the request. Its blocks must have been released. NULL is a no-op. */
void request_free(struct request *r);

/* Returns the blocks that `n_tokens` prompt tokens and `max_tokens` answered
 * tokens need; the KV of the last answered token is never computed. */
uint32_t request_blocks(uint32_t n_tokens, uint32_t max_tokens,
                        uint32_t block_tokens);

/* Takes all the blocks of `r`, a prefill without blocks: those of the prompt
 * that the store holds, and private ones for the rest. Returns 0; or -ENOSPC or
 * -ENOMEM, and `r` has no blocks. O(n_blocks). */
[[nodiscard]] int request_take(struct request *r, struct kv_store *store,
                               uint32_t block_tokens);

/* Marks the prompt's blocks in the store as most recently used, for a prefill
 * `r` that has no blocks and may wait long. No pins. O(blocks found). */
void request_touch(struct request *r, struct kv_store *store);

/* Returns how many leading blocks of the prompt of `r` the store holds now, and
 * notes the last one in r->there. No pins. O(blocks added since the last look);
 * O(blocks found) if the last one is gone. */
uint32_t request_look(struct request *r, const struct kv_store *store,
                      uint32_t block_tokens);

/* Reuses blocks of the prompt that entered the store since request_take(),
 * before anything is computed. They replace blocks that `r` loaded meanwhile.
 * O(n_full). */
void request_adopt(struct request *r, struct kv_store *store,
                   uint32_t block_tokens);

/* Returns how long (us) a begun prefill waited for its turn: with
 * interruptions, but without time in which it waited only for its load. */
int64_t request_queue_us(const struct request *r);

/* Appends block `id`, whose pin the request takes over. */
void request_append(struct request *r, const struct kv_store *store,
                    uint32_t id);

/* Replaces ids[i], whose pin is released, by `id`. */
void request_replace(struct request *r, struct kv_store *store, uint32_t i,
                     uint32_t id);

/* Moves the position past loaded blocks, which begins a new run of chunks, and
 * commits complete blocks to the store. */
void request_advance(struct request *r, struct kv_store *store,
                     uint32_t block_tokens);

/* Returns the tokens from the position to the next loaded block, or to the end
 * of the prompt. O(blocks between them). */
uint32_t request_room(const struct request *r, uint32_t block_tokens);

/* Releases all pins; position and chain return to 0. */
void request_release(struct request *r, struct kv_store *store);

/* Empties the table. */
void request_table_init(struct request_table *t);

/* Returns the request with this id, or NULL. */
struct request *request_find(const struct request_table *t, uint64_t id);

/* Inserts a request; no other with its id may be there. */
void request_insert(struct request_table *t, struct request *r);

/* Removes a request, which must be there. */
void request_remove(struct request_table *t, struct request *r);

/* Returns the name of a state, static, for logs. */
const char *request_state_name(enum request_state state);

#endif
