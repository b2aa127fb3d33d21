/*
 * The messages: one plain struct each, with functions to pack and unpack it.
 *
 * X_pack(buf, request_id, m) appends a whole frame (header and payload) to buf;
 * a failure shows in buf->failed. X_unpack(p, len, m) reads a payload and
 * returns 0, or -EBADMSG when it is too short, too long, or holds a value
 * outside its range. A HELLO of a newer version may be longer. Arrays of a
 * decoded message are views into the payload (not aligned: read them with
 * wire_u32_at()/wire_u64_at()) and die with it; arrays of a message to pack are
 * native and aligned. A message's last array may be NULL with a count:
 * X_pack() then writes the frame's header and the count, and the caller sends
 * the elements itself. Messages without a payload are written with
 * msg_empty_pack().
 */
#ifndef PROTO_MESSAGE_H
#define PROTO_MESSAGE_H

#include <stdint.h>

#include "proto/frame.h"

#define PROTO_MAGIC 0x52444e43u /* "CNDR" */
#define PROTO_VERSION 3u

#define MSG_NAME_MAX 64  /* bytes of a name, with its NUL */
#define MSG_HOST_MAX 256 /* bytes of a host, with its NUL */
#define MSG_TEXT_MAX 512 /* bytes of a message for people, with its NUL */

#define PROTO_NONCE_BYTES 32u
#define PROTO_PROOF_BYTES 32u /* HMAC-SHA256 */

#define MSG_SOURCES_MAX 4 /* sources of one prefill */

/* Features that depend on a side's engine, or on the use of a connection; a
 * frame that needs one goes only where both sides name it. */
enum proto_capability {
    PROTO_CAP_TRANSPORTS = 1u << 3, /* takes TRANSPORTS: moves KV */
    PROTO_CAP_STAGES = 1u << 8,     /* takes PREFILL_GROUP and STAGE_BEGIN */
};

enum proto_peer_kind {
    PROTO_PEER_CONDUCTOR = 1,
    PROTO_PEER_WORKER = 2,      /* a worker that registers with a conductor */
    PROTO_PEER_WORKER_PEER = 3, /* a worker that speaks to another worker */
    PROTO_PEER_WORKER_DATA = 4, /* as WORKER_PEER, for KV over transport tcp */
};

enum proto_role {
    PROTO_ROLE_PREFILL = 1,
    PROTO_ROLE_DECODE = 2,
    PROTO_ROLE_BOTH = 3,
};

enum proto_tier {
    PROTO_TIER_DEVICE = 0,
    PROTO_TIER_HOST = 1,
    PROTO_TIER_DISK = 2,
    PROTO_TIER_SHARED = 3, /* the store that all workers share */
    PROTO_TIER_COUNT = 4,
};

/* How a prefill loads the blocks from its sources. */
enum proto_load_mode {
    PROTO_LOAD_AUTO = 0,      /* loads all, and blocks from its own disk */
    PROTO_LOAD_COMPUTE = 1,   /* loads none */
    PROTO_LOAD_LOAD = 2,      /* loads all, then computes the rest */
    PROTO_LOAD_BOTH = 3,      /* computes from the front, loads from the end */
    PROTO_LOAD_LAYERWISE = 4, /* computes the rest while layers arrive */
    PROTO_LOAD_COUNT = 5,
};

enum proto_source_kind {
    PROTO_SOURCE_PEER = 1,   /* another worker */
    PROTO_SOURCE_DISK = 2,   /* the worker's own disk */
    PROTO_SOURCE_SHARED = 3, /* the shared store */
};

/* Error codes in ERROR, FAILED, FETCH_END and KV_REFUSE. */
enum proto_code {
    PROTO_OK = 0,
    PROTO_E_VERSION = 1,      /* no common protocol version */
    PROTO_E_BAD_FRAME = 2,    /* frame malformed, too long, or out of place */
    PROTO_E_INCOMPATIBLE = 3, /* different model, layout or queue order */
    PROTO_E_INVALID = 4,      /* the request cannot be served here */
    PROTO_E_BUSY = 5,         /* a bounded queue is full */
    PROTO_E_CAPACITY = 6,     /* more KV than this worker could ever hold */
    PROTO_E_PEER = 7,         /* the other worker failed or went away */
    PROTO_E_CANCELLED = 8,
    PROTO_E_INTERNAL = 9,
    PROTO_E_DUPLICATE = 10, /* the name or request id is in use */
    PROTO_E_REFUSED = 11,   /* untrusted; the other side's log says why */
};

/* proto_code_name(code): returns a short lower-case name, or "unknown". */
const char *proto_code_name(uint16_t code);

/* proto_role_name(role): returns "prefill", "decode" or "both", as in a
 * worker's --role; "unknown" for others. */
const char *proto_role_name(uint8_t role);

struct msg_hello {
    uint32_t magic;
    uint16_t version_min, version_max;
    uint8_t kind;          /* enum proto_peer_kind */
    uint8_t role;          /* enum proto_role; 0 for a conductor */
    uint64_t capabilities; /* enum proto_capability */
    char name[MSG_NAME_MAX];
    char engine[MSG_NAME_MAX];
    char model[MSG_NAME_MAX];
    uint64_t fingerprint; /* model, seed, element type, KV layout */
    uint32_t block_tokens;
    uint32_t window_tokens;
    uint32_t vocab;
    uint64_t kv_capacity_blocks;
    uint64_t kv_bytes_per_token;
    uint64_t disk_capacity_blocks; /* 0 = no disk tier */
    uint32_t max_batch;
    uint32_t layers;              /* 0 = cannot load layer by layer */
    char peer_host[MSG_HOST_MAX]; /* where other workers reach it; "" = the
                                     address of this connection */
    uint16_t peer_port;
    uint8_t nonce[PROTO_NONCE_BYTES]; /* random, of this connection alone */
};

struct msg_challenge {
    uint8_t nonce[PROTO_NONCE_BYTES]; /* random, of this connection alone */
};

struct msg_proof {
    uint8_t mac[PROTO_PROOF_BYTES]; /* see base/secret.h */
};

struct msg_welcome {
    uint16_t version;
    uint64_t capabilities; /* common to both sides */
    uint32_t instance_id;
    uint32_t heartbeat_ms;          /* STATUS at least this often */
    char queue_order[MSG_NAME_MAX]; /* core/step/queue; "" between workers */
};

struct msg_error {
    uint16_t code; /* enum proto_code */
    char text[MSG_TEXT_MAX];
};

struct msg_status {
    uint32_t prefill_queued; /* requests accepted and not started */
    uint32_t prefill_running;
    uint32_t decode_active; /* sequences in the batch */
    uint64_t kv_used_blocks;
    uint64_t kv_pinned_blocks;
    uint64_t disk_used_blocks;
    uint64_t disk_bytes_per_s; /* measured read rate; 0 = unknown */
};

#define MSG_PATHS_MAX 16

/* Recent rate of loads from another worker. */
struct msg_path {
    char host[MSG_HOST_MAX];
    uint16_t port;
    char transport[MSG_NAME_MAX];
    uint64_t bytes_per_s; /* at least 1 */
};

/* All known rates; replaces the list sent before. */
struct msg_paths {
    uint8_t n;
    struct msg_path list[MSG_PATHS_MAX]; /* (n) */
};

/* A worker's view of the shared store. */
struct msg_shared {
    uint64_t id;            /* contents id; 0 = the store is away */
    uint64_t bytes_per_s;   /* as disk_bytes_per_s */
    uint64_t put_blocks;    /* since the worker started */
    uint64_t missed_blocks; /* wanted by a load, but missing or damaged */
    uint64_t failed_puts;
    uint64_t went_away; /* times the store went away */
};

/* A source for blocks [from_block, to_block) of the prompt. */
struct msg_source {
    uint8_t kind;            /* enum proto_source_kind */
    char host[MSG_HOST_MAX]; /* of a peer; "" for other kinds */
    uint16_t port;
    uint32_t from_block, to_block;
};

struct msg_prefill {
    uint64_t key_seed; /* block_key_seed() of model, adapter and tenant */
    uint32_t max_tokens;
    uint64_t cost_us;  /* predicted prefill time; 0 = not known */
    uint64_t due_us;   /* from now to its TTFT deadline; 0 = no SLO */
    uint64_t ready_us; /* from now until its blocks should be loaded; 0 = now */
    /* Decode worker that gets the KV; "" = none, or this worker (role
     * both). */
    char decode_host[MSG_HOST_MAX];
    uint16_t decode_port;
    uint8_t load_mode; /* enum proto_load_mode */
    uint8_t n_sources;
    struct msg_source sources[MSG_SOURCES_MAX];
    uint32_t n_tokens;
    const uint8_t *tokens; /* (n_tokens) u32 */
};

struct msg_decode {
    uint32_t n_tokens; /* prompt tokens whose KV will arrive */
    uint32_t max_tokens;
    uint64_t prompt_digest; /* block_key_prompt_digest() */
};

#define MSG_CONDUCTORS_MAX 64 /* conductors of one worker */

/* States that the sender leads: the worker obeys its COPY, DROP and ROLE,
 * unless another conductor announced a higher token. */
struct msg_lead {
    uint64_t token; /* above 0 */
};

/* Address where a conductor accepts workers. */
struct msg_conductor {
    char host[MSG_HOST_MAX];
    uint16_t port;
};

struct msg_conductors {
    uint8_t n; /* at least 1; at[0] is the sender's address */
    struct msg_conductor at[MSG_CONDUCTORS_MAX];
};

/* Order to fetch blocks [from_block, n) of a chain from another worker while
 * nothing else is loading. */
struct msg_copy {
    uint64_t key_seed; /* seed of the keys */
    char host[MSG_HOST_MAX];
    uint16_t port;
    uint64_t bytes_per_s; /* rate limit, above 0 */
    uint32_t from_block;
    uint32_t n;
    const uint8_t *keys; /* (n) u64, a chain that begins a prompt */
};

/* A COPY ended. */
struct msg_copied {
    uint32_t blocks; /* blocks fetched, reported as stored before */
};

/* Order to evict the block `key` and its ancestors, n blocks in all, unless in
 * use. */
struct msg_drop {
    uint64_t key;
    uint32_t n;
};

/* The worker's new role; running requests continue. */
struct msg_role {
    uint8_t role; /* enum proto_role */
};

struct msg_prefill_started {
    uint64_t queue_us; /* PREFILL's arrival until now, without time spent
                          waiting only for its load */
};

struct msg_prefill_done {
    uint32_t first_token;
    uint32_t local_tokens;   /* reused from this worker's own cache */
    uint32_t fetched_tokens; /* fetched from other workers */
    uint32_t computed_tokens;
    uint32_t disk_tokens; /* loaded from this worker's disk */
    uint64_t queue_us;    /* as in PREFILL_STARTED */
    uint64_t fetch_us;    /* arrival until the fetch ended; 0 without one */
    uint64_t fetch_bytes;
    uint64_t prefill_us; /* start until the first token */
    uint64_t load_us; /* request for the first block until the last one arrived,
                         over all sources; 0 = nothing loaded */
    uint64_t disk_bytes;    /* read from this worker's disk */
    uint8_t load_mode;      /* enum proto_load_mode used; not AUTO */
    uint32_t shared_tokens; /* loaded from the shared store */
    uint64_t shared_bytes;  /* read from the shared store */
};

/* A token of TOKENS, which holds tokens of many requests. index 0 is the token
 * in PREFILL_DONE. */
struct msg_token {
    uint64_t request_id;
    uint32_t index;
    uint32_t token;
};
#define MSG_TOKEN_BYTES 16u

struct msg_tokens {
    uint32_t n;
    const uint8_t *entries; /* (n) of MSG_TOKEN_BYTES; msg_tokens_at() */
};

struct msg_done {
    uint32_t output_tokens;
};

/* A chain: keys[0]'s parent is `parent` (0 = it begins a prompt), keys[i]'s
 * parent is keys[i - 1]. */
struct msg_blocks_stored {
    uint8_t tier; /* enum proto_tier */
    uint64_t parent;
    uint32_t n;
    const uint8_t *keys; /* (n) u64 */
};

struct msg_blocks_removed {
    uint8_t tier;
    uint32_t n;
    const uint8_t *keys; /* (n) u64 */
};

/* Marks begin and end of a requested inventory among the block events. */
struct msg_inventory_mark {
    uint8_t ends; /* 0 = begin, 1 = end */
};

/* Opens a fetch: asks which of these blocks the other side holds. */
struct msg_fetch {
    uint32_t n;
    const uint8_t *keys; /* (n) u64, a chain that begins a prompt */
};

/* The answer: the tokens of the leading blocks held; the asker compares them
 * with its own before it uses any block. */
struct msg_fetch_chain {
    uint32_t n_tokens;
    const uint8_t *tokens; /* (n_tokens) u32 */
};

/* Transports for KV: the accepting side's offer, or the connecting side's
 * choice. */
#define MSG_TRANSPORTS_MAX 4
#define MSG_DESCRIPTOR_MAX 1024u

struct msg_transport {
    char name[MSG_NAME_MAX];
    uint32_t n;                /* at most MSG_DESCRIPTOR_MAX */
    const uint8_t *descriptor; /* (n), transport-specific */
};

struct msg_transports {
    uint8_t n;
    struct msg_transport list[MSG_TRANSPORTS_MAX]; /* (n) */
};

/* Asks for layers of one block of an open fetch, to be read over the chosen
 * transport. */
struct msg_fetch_want {
    uint32_t block; /* of the chain */
    uint32_t from_layer, n_layers;
};

/* The answer: location, grant and checksums of the layers. */
struct msg_fetch_grant {
    uint32_t block;
    uint32_t from_layer;
    uint64_t grant_id;
    uint32_t region;
    uint64_t offset; /* of from_layer */
    uint32_t n_layers;
    const uint8_t *sums; /* (n_layers) u64: XXH3-64 of each layer, seed 0 */
};

/* The other side ends the fetch. */
struct msg_fetch_end {
    uint16_t code; /* why */
};

struct msg_kv_begin {
    uint32_t n_tokens;
    uint32_t max_tokens;
    uint64_t prompt_digest; /* of the computed prompt */
};

/* Location of the rows of tokens [from_token, from_token + n_tokens) in one
 * layer, for the receiver to read. */
struct msg_kv_layer {
    uint32_t layer;
    uint32_t from_token, n_tokens;
    uint64_t grant_id;
    uint32_t region;
    uint32_t n_blocks;
    const uint8_t *offsets; /* (n_blocks) u64: start of each block */
    uint32_t n_sums;
    const uint8_t *sums; /* (n_sums) u64: XXH3-64, seed 0, of a whole block's
                            layer, or of part of its K rows and then of its V
                            rows */
};

/* The reader is done with a grant. */
struct msg_kv_taken {
    uint64_t grant_id;
};

struct msg_kv_end {
    uint32_t first_token;
};

#define MSG_DECLARE(name)                                            \
    void name##_pack(struct wire_buf *buf, uint64_t request_id,      \
                     const struct name *m);                          \
    [[nodiscard]] int name##_unpack(const void *payload, size_t len, \
                                    struct name *m)

MSG_DECLARE(msg_hello);
MSG_DECLARE(msg_challenge);
MSG_DECLARE(msg_proof);
MSG_DECLARE(msg_welcome);
MSG_DECLARE(msg_error);
MSG_DECLARE(msg_status);
MSG_DECLARE(msg_shared);
MSG_DECLARE(msg_prefill);
MSG_DECLARE(msg_decode);
MSG_DECLARE(msg_copy);
MSG_DECLARE(msg_copied);
MSG_DECLARE(msg_drop);
MSG_DECLARE(msg_role);
MSG_DECLARE(msg_conductors);
MSG_DECLARE(msg_lead);
MSG_DECLARE(msg_prefill_started);
MSG_DECLARE(msg_prefill_done);
MSG_DECLARE(msg_done);
MSG_DECLARE(msg_blocks_stored);
MSG_DECLARE(msg_blocks_removed);
MSG_DECLARE(msg_inventory_mark);
MSG_DECLARE(msg_paths);
MSG_DECLARE(msg_fetch);
MSG_DECLARE(msg_fetch_chain);
MSG_DECLARE(msg_transports);
MSG_DECLARE(msg_fetch_want);
MSG_DECLARE(msg_fetch_grant);
MSG_DECLARE(msg_fetch_end);
MSG_DECLARE(msg_kv_begin);
MSG_DECLARE(msg_kv_layer);
MSG_DECLARE(msg_kv_taken);
MSG_DECLARE(msg_kv_end);

/* proto_version_common(m): returns the newest version that both sides support,
 * or 0. */
uint16_t proto_version_common(const struct msg_hello *m);

/* msg_empty_pack(buf, type, request_id): appends a frame without a payload
 * (CANCEL, INVENTORY, DECODE_READY, BLOCKS_CLEARED, KV_GRANT, STAGE_READY,
 * ...). */
void msg_empty_pack(struct wire_buf *buf, uint16_t type, uint64_t request_id);

/* msg_error_like_pack(buf, type, request_id, code, text): appends ERROR,
 * FAILED, KV_REFUSE or STAGE_REFUSE, which share msg_error's payload. Cuts text
 * to MSG_TEXT_MAX - 1 bytes. */
void msg_error_like_pack(struct wire_buf *buf, uint16_t type,
                         uint64_t request_id, uint16_t code, const char *text);

/* msg_tokens_pack(buf, entries, n): appends one TOKENS frame with n native
 * entries. */
void msg_tokens_pack(struct wire_buf *buf, const struct msg_token *entries,
                     uint32_t n);

/* msg_tokens_unpack(payload, len, m): reads TOKENS, as the other decoders. */
[[nodiscard]] int msg_tokens_unpack(const void *payload, size_t len,
                                    struct msg_tokens *m);

/* msg_tokens_at(m, i): returns entry i < m->n. */
struct msg_token msg_tokens_at(const struct msg_tokens *m, uint32_t i);

#endif
