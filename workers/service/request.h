/* One request inside a worker, from its frame to its last token, and the table
 * that finds it by its id. A request is a prefill, a decode, or both in turn
 * (role both).
 *
 * Everything about requests happens on the worker's loop thread. The compute
 * thread sees only the segments of the step it was given; `step.under_way` says
 * that it may be writing this request's blocks now, so they must stay.
 *
 * Invariants:
 *   only request_set_state() changes the state
 *   a request has all the blocks that it will ever need (blocks.n =
 *     blocks.n_needed), or none (blocks.n = 0)
 *   blocks.ids[0 .. n) each carry one pin of this request
 *   blocks.extra[0 .. n_extra) too: held twins of blocks that it had computed
 *     itself
 *   blocks.ids[0 .. n_chained) were matched or committed; `tip` is the held
 *     block at n_chained - 1 (or its twin), NONE if n_chained = 0
 *   the KV of tokens [0, position) is complete in the blocks
 *   load.origin[i] of a block behind position says that its KV is complete too
 *   load.n_local + n_fetched + n_disk + n_shared = blocks in front of position
 * that were not computed
 */
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
    REQUEST_KV_WAIT,   /* KV_BEGIN came, waits for room */
    REQUEST_RECEIVING, /* granted; KV arrives */
    REQUEST_READY,     /* waits for a place in the batch */
    REQUEST_DECODE,    /* in the batch */
    REQUEST_ENDED,     /* about to be freed */
};

#define REQUEST_STATES (REQUEST_ENDED + 1)

/* Who brought a block of the prompt. */
enum block_origin {
    BLOCK_COMPUTED = 0, /* here, or it is not there yet */
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
    uint32_t n_reusable; /* of these, so many may be reused: at least the last
                            token must be computed */
    uint64_t digest;     /* block_key_prompt_digest() */
    bool learns;       /* its tokens are those that a peer has under its keys */
    uint64_t key_seed; /* by which they must give these keys; where it learns */
};

/* Where its KV is. */
struct request_kv {
    uint32_t n_needed; /* blocks that it will ever need */
    uint32_t *ids;     /* (n_needed), owned */
    void **data;       /* (n_needed), owned; memory of ids[i] */
    uint32_t n;
    uint32_t *extra; /* (prompt.n_full), owned; NULL without tokens */
    uint32_t n_extra;
    uint32_t n_chained;
    uint32_t tip;
    bool chain_closed; /* a collision: no further block can be shared */
};

/* Leading blocks of its prompt that the store held when it was looked at. */
struct request_there {
    uint32_t n;
    uint32_t tip;    /* the last of them */
    uint64_t number; /* of its allocation: else it is another block by now */
};

/* Its turn in the queue. */
struct request_turn {
    uint64_t seq; /* order of arrival */
    int64_t arrival_us;
    int64_t cost_us;     /* as the conductor predicts it; 0: not known */
    int64_t deadline_us; /* of its first token */
    bool has_slo;        /* that says so; else it is implied */
    int64_t expected_us; /* when its blocks are, as the conductor predicts it */
    int64_t started_us;
    int64_t stood_us;        /* since then, in steps without it: interrupted */
    int64_t stands_since_us; /* 0: it is in the step under way */
    uint32_t computed;       /* tokens, in steps that ended */
    int64_t came_us;  /* the engine was free for it, but its load had not come;
                          0: that did not happen */
    int64_t freed_us; /* it no longer had to wait for its load */
    struct request *follows; /* waits in front of it, and makes blocks that it
                                lacks; NULL: none */
    int64_t shared_us;       /* of what that one costs, for such blocks */
    bool looks;              /* it is not known yet whom it follows */
};

/* What the step under way does for it; step/batch.c. */
struct request_step {
    bool under_way;    /* the compute thread works on it */
    bool staged;       /* in some layers only: no layer counts as done */
    uint32_t n_tokens; /* behind its position, complete after the step */
    uint32_t segment;  /* its place in the step */
    /* The rest may be computed while layers are still on their way: the next
     * step begins at gate_token and waits at `gate` for each layer. */
    bool gated;
    uint32_t gate_token;
    struct layer_gate gate;
};

/* What the loader does for it; load/loader.h. */
struct request_load {
    struct load *job;    /* NULL: nothing is or will be on its way */
    bool held_back;      /* nothing may be computed until its load allows it */
    uint8_t mode;        /* enum load_mode in which it was loaded */
    uint32_t from_block; /* the first that it brings */
    uint8_t *origin;     /* (prompt.n_full + 1), owned: enum block_origin; NULL
                            without tokens */
    uint32_t n_local;    /* blocks that were in the store */
    uint32_t n_fetched;
    uint32_t n_disk;
    uint32_t n_shared;
    uint64_t fetch_bytes; /* loaded from others, used or not */
    uint64_t disk_bytes;
    uint64_t shared_bytes;
    int64_t us;       /* from the first block asked for to the last that came */
    int64_t fetch_us; /* from arrival to the end of a load from others */
};

/* KV on its way to the decode worker; transfer/push.c. */
struct request_push {
    char host[MSG_HOST_MAX]; /* the decode worker; "": none */
    uint16_t port;
    struct peer *peer; /* NULL: not begun, or everything was sent, or it failed
                        */
    TAILQ_ENTRY(request) link;
    bool failed;
    bool granted;
    uint32_t from_token;  /* start of the range being sent */
    uint32_t end_token;   /* its end; = from_token: no range is chosen */
    uint32_t layer;       /* being sent */
    uint32_t sent_tokens; /* of the range, in this layer */
    int64_t since_us;     /* when it was offered, then when it was computed */
    TAILQ_HEAD(, push_piece)
    pieces; /* that were begun and not taken; in use
               with a peer */
    uint32_t n_pieces;
};

/* KV that arrives from a prefill worker; transfer/receive.c. */
struct request_receive {
    struct inbound *from; /* NULL: no KV_BEGIN yet, or all is here */
    TAILQ_ENTRY(request) link;
    uint32_t *next_token; /* (layers), owned */
    TAILQ_HEAD(, receive_piece)
    pieces; /* that were told of and not read; in
               use with a sender */
    uint32_t n_pieces;
};

struct request {
    uint64_t id;
    struct conductor *conductor; /* whose it is */
    enum request_state state;
    LIST_ENTRY(request) by_id;
    TAILQ_ENTRY(request) link; /* the list of its state, if it has one */
    bool dead;                 /* free it when the step under way ends */

    uint32_t max_tokens; /* of the answer, at least 1 */
    bool decodes_here;   /* the answer's tokens need room in the blocks */
    struct request_prompt prompt;

    uint32_t position;      /* tokens whose KV is there */
    uint32_t cached_tokens; /* in front of the run of chunks under way */
    uint32_t last_token;
    uint32_t n_output; /* tokens of the answer so far */

    struct request_kv blocks;
    struct request_there there;
    struct request_turn turn;
    struct request_step step;
    struct request_load load;
    struct request_push push;
    struct request_receive receive;
    struct group *group; /* that prefills it, led here; NULL: none */
};

TAILQ_HEAD(request_list, request);

#define REQUEST_BUCKETS 1024u

/* Finds requests by id. Bounded by those who insert. */
struct request_table {
    LIST_HEAD(, request) buckets[REQUEST_BUCKETS];
    uint32_t n;
};

/* What request_new needs to know. `tokens` (n_tokens) is borrowed and copied;
 * unaligned little-endian, as it stands in a frame; NULL for a request that
 * is only decoded here. */
struct request_spec {
    uint64_t id;
    struct conductor *conductor;
    uint64_t key_seed;
    uint64_t prompt_digest; /* without tokens; else it is computed */
    const uint8_t *tokens;
    uint32_t n_tokens;
    uint32_t max_tokens;
    uint32_t block_tokens;
    bool decodes_here;
};

/* Make a request in state REQUEST_WAITING, or REQUEST_ANNOUNCED without tokens.
 * Returns it owned, or NULL: out of memory. O(tokens). */
[[nodiscard]] struct request *request_new(const struct request_spec *spec);

/* Whether a request may go from one state to the other. */
bool request_may_go(enum request_state from, enum request_state to);

/* Bring `r` into state `to`; request_may_go() must allow it. Only this function
 * changes the state; the caller moves `r` between lists. */
void request_set_state(struct request *r, enum request_state to);

/* Free the request. Its blocks must have been released. NULL is a no-op. */
void request_free(struct request *r);

/* Blocks that `n_tokens` prompt tokens and `max_tokens` answered tokens need;
 * the KV of the last answered token is never computed. */
uint32_t request_blocks(uint32_t n_tokens, uint32_t max_tokens,
                        uint32_t block_tokens);

/* Take all the blocks of `r`, a prefill without blocks: those of the prompt
 * that the store holds, and the rest as private ones. 0, or -ENOSPC or -ENOMEM,
 * and it has none. O(n_blocks). */
[[nodiscard]] int request_take(struct request *r, struct kv_store *store,
                               uint32_t block_tokens);

/* Make the blocks that the store holds of the prompt of `r`, a prefill without
 * blocks, the most recently used: it may wait long. No pins. O(run). */
void request_touch(struct request *r, struct kv_store *store);

/* Look how many leading blocks of the prompt of `r` the store holds now, with
 * the last of them in r->there. Returns that number. No pins. O(1) and what has
 * come since the last look; O(run) if the last of these has left. */
uint32_t request_look(struct request *r, const struct kv_store *store,
                      uint32_t block_tokens);

/* Reuse what the store has come to hold of the prompt since request_take();
 * nothing was computed yet. Blocks that were loaded meanwhile are given back
 * where others hold them. O(n_full). */
void request_adopt(struct request *r, struct kv_store *store,
                   uint32_t block_tokens);

/* How long the prefill, which has begun, waited for its turn, again where it
 * was interrupted, without the time in which it waited only for its load. */
int64_t request_queue_us(const struct request *r);

/* Note that ids[blocks.n] is now `id`, whose pin the request takes over. */
void request_append(struct request *r, const struct kv_store *store,
                    uint32_t id);

/* Use `id` instead of ids[i], whose pin is released. */
void request_replace(struct request *r, struct kv_store *store, uint32_t i,
                     uint32_t id);

/* Move the position over loaded blocks, which begins a new run of chunks, and
 * share complete blocks. */
void request_advance(struct request *r, struct kv_store *store,
                     uint32_t block_tokens);

/* Tokens between the position and the next block that was loaded, or the end
 * of the prompt. O(blocks between them). */
uint32_t request_room(const struct request *r, uint32_t block_tokens);

/* Give back all pins; position and chain return to 0. */
void request_release(struct request *r, struct kv_store *store);

/* Empty the table. */
void request_table_init(struct request_table *t);

/* The request of that id, or NULL. */
struct request *request_find(const struct request_table *t, uint64_t id);

/* Insert; no request of that id may be there. */
void request_insert(struct request_table *t, struct request *r);

/* Remove; the request must be there. */
void request_remove(struct request_table *t, struct request *r);

/* Name of a state, static, for logs. */
const char *request_state_name(enum request_state state);

#endif
