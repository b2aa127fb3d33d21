/* The card, as the C part of engine "cuda" sees it: weights, pages of KV,
 * three streams (compute, load, store), and the steps that are put into them.
 * No CUDA type crosses this header.
 *
 * Nothing here waits unless it says so. Within a stream, work runs in the order
 * of the calls; between streams:
 *
 *   load     uploads of layer l --(loaded l)--> attention of layer l
 *   compute  K, V of layer l in the pages --(placed l)--> downloads of layer l
 *   store    downloads of layer l --(stored l)--> cuda_card_stored()
 *
 * Functions return 0; or -ENODEV if the card is gone or in an unusable state:
 * cuda_card_error() says what it was, and only cuda_card_close() is left to do.
 * Copies and tickets may be asked for on another thread than the steps.
 */
#ifndef WORKERS_ENGINE_CUDA_CUDA_ENGINE_H
#define WORKERS_ENGINE_CUDA_CUDA_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "workers/engine/model.h"

/* Rows of prompts begin the batch and are padded to CUDA_PREFILL_ROWS, then
 * come those of decodes, padded to CUDA_DECODE_ROWS: each kind goes through
 * matrix products of its own. */
#define CUDA_PREFILL_ROWS 128
#define CUDA_DECODE_ROWS 64
/* Rows of attention that one block computes: tokens x heads of a KV head. */
#define CUDA_TILE_ROWS 128
/* Keys of one piece of a decode attention. */
#define CUDA_SPLIT_KEYS 256
/* Tickets of uploads that may be under way at once. */
#define CUDA_TICKETS 64

struct cuda_card;

static inline uint32_t cuda_round_up(uint32_t n, uint32_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* What to put on the card. */
struct cuda_card_config {
    const struct model_shape *shape; /* borrowed for the call */
    uint64_t seed;
    uint32_t layers;       /* at least 1 */
    uint32_t block_tokens; /* of a page */
    uint32_t step_tokens;  /* most rows of a batch, without padding */
    uint64_t page_bytes;   /* of all pages together; 0: what is free */
};

/* Consecutive tokens of one prompt that a block of the attention takes. */
struct cuda_tile {
    uint32_t row; /* of the batch: the first token's */
    uint32_t n_tokens;
    uint32_t position; /* of the first token */
    uint32_t table;    /* of the request's pages: the first one's place */
};

/* A piece of the keys of one decoded token. */
struct cuda_split {
    uint32_t decode; /* its number among the decodes */
    uint32_t from_key;
    uint32_t to_key;
    uint32_t table;
};

/* The pieces of one decoded token: splits[first .. first + n). */
struct cuda_decode {
    uint32_t first_split;
    uint32_t n_splits;
};

/* What a batch computes. The arrays belong to the card, have room for what
 * cuda_card_limits says, and are filled by the caller between two batches.
 * Rows of padding have the page CUDA_NO_PAGE. */
struct cuda_batch {
    uint32_t prefill_rows; /* with padding */
    uint32_t decode_rows;  /* with padding */
    uint32_t n_table, n_tiles, n_splits, n_decodes, n_wanted;
    uint32_t *tokens;    /* [rows] */
    uint32_t *positions; /* [rows] */
    uint32_t *pages;     /* [rows] the page of the row's own token */
    uint32_t *table;     /* [n_table] pages of the requests */
    struct cuda_tile *tiles;
    struct cuda_split *splits;
    struct cuda_decode *decodes;
    uint32_t *wanted; /* [n_wanted] rows that are to be answered */
};
#define CUDA_NO_PAGE UINT32_MAX

/* What fits. */
struct cuda_card_limits {
    uint32_t pages;
    uint32_t rows; /* with padding */
    uint32_t table;
    uint32_t splits;
};

/* A rectangle of a page and of its host block, which have the same layout; or
 * the same one of several of them, which follow each other on both sides and
 * lie in one piece of host memory: then it is all rows of one layer. */
struct cuda_piece {
    void *block;
    uint32_t page;
    uint32_t n_blocks;
    uint32_t from_layer;
    uint32_t to_layer;
    uint32_t from_slot; /* rows of K and V of each of the layers */
    uint32_t to_slot;
};

/* Whether this process can use a card at all: 0, or -ENODEV with why not in
 * err[err_bytes]. */
[[nodiscard]] int cuda_card_present(char *err, size_t err_bytes);

/* Takes the first card, draws the weights there and takes memory for pages.
 * Returns it owned, or NULL with a message that says what is missing and what
 * to do. Cost: seconds for large models. */
[[nodiscard]] struct cuda_card *
cuda_card_open(const struct cuda_card_config *config, char *err,
               size_t err_bytes);

/* Waits for what runs, and frees all. NULL is fine. */
void cuda_card_close(struct cuda_card *card);

/* Valid until cuda_card_close(). */
const struct cuda_card_limits *cuda_card_limits(const struct cuda_card *card);
struct cuda_batch *cuda_card_batch(struct cuda_card *card);

/* What the card said last when something failed; "" if nothing did. */
const char *cuda_card_error(const struct cuda_card *card);

/* Name of the card, and how the matrix products are computed. */
const char *cuda_card_name(const struct cuda_card *card);
const char *cuda_card_multiply(const struct cuda_card *card);

/* Page-locked host memory, aligned to a page; NULL if there is none. */
[[nodiscard]] void *cuda_card_host_alloc(struct cuda_card *card, size_t bytes);
void cuda_card_host_free(struct cuda_card *card, void *memory);

/* --- pages for others --- */

/* Of a handle by which another process opens the pages (CUDA IPC). */
#define CUDA_HANDLE_BYTES 64

/* Where the pages begin, for the card, and how long all of them are. */
uint64_t cuda_card_pages(const struct cuda_card *card, uint64_t *bytes);

/* Their handle. 0, or -ENOTSUP. */
[[nodiscard]] int cuda_card_handle(struct cuda_card *card,
                                   uint8_t handle[CUDA_HANDLE_BYTES]);

/* A dmabuf of them, owned by the caller; -1: the card or its driver has none.
 */
[[nodiscard]] int cuda_card_dmabuf(const struct cuda_card *card);

/* Opens the pages of another process. NULL: it cannot, or they have less than
 * `bytes`. On any thread, as all below. */
[[nodiscard]] void *cuda_card_open_peer(struct cuda_card *card,
                                        const uint8_t handle[CUDA_HANDLE_BYTES],
                                        uint64_t bytes);
void cuda_card_shut_peer(struct cuda_card *card, void *memory);

/* Copies from what was opened to host memory that is known to the card, by way
 * of `page`, at `offset` in it (CUDA_NO_PAGE: straight), and waits for it. */
[[nodiscard]] int cuda_card_read_peer(struct cuda_card *card, const void *from,
                                      uint32_t page, uint64_t offset, void *to,
                                      uint64_t bytes);

/* Locks memory that somebody else has made, so that it can be copied as that of
 * cuda_card_host_alloc(). 0 or -ENOMEM. */
[[nodiscard]] int cuda_card_adopt(struct cuda_card *card, void *memory,
                                  size_t bytes);
void cuda_card_disown(struct cuda_card *card, void *memory);

/* Begins the batch: its description, embeddings and angles. */
[[nodiscard]] int cuda_card_begin(struct cuda_card *card);

/* One layer up to K and V in the pages; `placed` of the layer. */
[[nodiscard]] int cuda_card_place(struct cuda_card *card, uint32_t layer);

/* The rest of the layer, after what cuda_card_loaded() said of it. */
[[nodiscard]] int cuda_card_attend(struct cuda_card *card, uint32_t layer);

/* Copies a piece from its block to its page (load stream). */
[[nodiscard]] int cuda_card_upload(struct cuda_card *card,
                                   const struct cuda_piece *piece);

/* All uploads so far come before the attention of `layer`. */
[[nodiscard]] int cuda_card_loaded(struct cuda_card *card, uint32_t layer);

/* Downloads of `layer` come after its K and V (store stream). */
[[nodiscard]] int cuda_card_store(struct cuda_card *card, uint32_t layer);

/* Copies a piece from its page to its block (store stream). */
[[nodiscard]] int cuda_card_download(struct cuda_card *card,
                                     const struct cuda_piece *piece);

/* All downloads so far belong to `stored` of the layer. */
[[nodiscard]] int cuda_card_mark_stored(struct cuda_card *card, uint32_t layer);

/* Whether the downloads of the layer are over: 1, 0 (never with `wait`,
 * which waits), or -ENODEV. */
[[nodiscard]] int cuda_card_stored(struct cuda_card *card, uint32_t layer,
                                   bool wait);

/* Ends the batch: answers to its wanted rows in answers[n_wanted]. Waits for
 * the compute stream. */
[[nodiscard]] int cuda_card_finish(struct cuda_card *card, uint32_t *answers);

/* Waits for everything in all streams. */
[[nodiscard]] int cuda_card_wait(struct cuda_card *card);

/* Waits for all downloads. */
[[nodiscard]] int cuda_card_wait_stored(struct cuda_card *card);

/* Ticket `ticket` (0 .. CUDA_TICKETS - 1) is over when all uploads so far
 * are. */
[[nodiscard]] int cuda_card_ticket(struct cuda_card *card, uint32_t ticket);

/* Whether the ticket is over: 1, 0 (never with `wait`, which waits), or
 * -ENODEV. */
[[nodiscard]] int cuda_card_ticket_over(struct cuda_card *card, uint32_t ticket,
                                        bool wait);

/* The batch begins to compute after the ticket is over. */
[[nodiscard]] int cuda_card_after_ticket(struct cuda_card *card,
                                         uint32_t ticket);

#ifdef __cplusplus
}
#endif

#endif
