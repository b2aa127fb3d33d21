/* The card's interface for the C part of engine "cuda": weights, pages of KV,
 * three streams (compute, load, store), and their steps. No CUDA type crosses
 * this header.
 *
 * Nothing here waits unless it says so. Within a stream, work runs in the order
 * of the calls; between streams:
 *
 *   load     uploads of layer l --(loaded l)--> attention of layer l
 *   compute  K, V of layer l in the pages --(placed l)--> downloads of layer l
 *   store    downloads of layer l --(stored l)--> cuda_card_stored()
 *
 * Functions return 0; or -ENODEV if the card is gone or in an unusable state:
 * cuda_card_error() tells the cause, and only cuda_card_close() may follow.
 * Copies and tickets may be asked for on another thread than the steps. */
#ifndef WORKERS_ENGINE_CUDA_CUDA_ENGINE_H
#define WORKERS_ENGINE_CUDA_CUDA_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "workers/engine/model.h"

/* Prompt rows begin the batch, padded to CUDA_PREFILL_ROWS; decode rows
 * follow, padded to CUDA_DECODE_ROWS. Each kind has its own matrix
 * products. */
#define CUDA_PREFILL_ROWS 128
#define CUDA_DECODE_ROWS 64
/* Rows of attention that one block computes: tokens x heads of a KV head. */
#define CUDA_TILE_ROWS 128
/* Keys of one piece of a decode attention. */
#define CUDA_SPLIT_KEYS 256
/* Upload tickets that may be pending at once. */
#define CUDA_TICKETS 64

struct cuda_card;

static inline uint32_t cuda_round_up(uint32_t n, uint32_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* The model and the memory to put on the card. */
struct cuda_card_config {
    const struct model_shape *shape; /* borrowed for the call */
    uint64_t seed;
    uint32_t layers;       /* at least 1 */
    uint32_t block_tokens; /* of a page */
    uint32_t step_tokens;  /* most rows of a batch, without padding */
    uint64_t page_bytes;   /* all pages together; 0 = all that is free */
};

/* Consecutive tokens of a prompt that one block of attention takes. */
struct cuda_tile {
    uint32_t row; /* batch row of the first token */
    uint32_t n_tokens;
    uint32_t position; /* of the first token */
    uint32_t table;    /* index in batch.table of the request's first page */
};

/* A piece of the keys of one decoded token. */
struct cuda_split {
    uint32_t decode; /* index among the decodes */
    uint32_t from_key;
    uint32_t to_key;
    uint32_t table;
};

/* The pieces of one decoded token: splits[first .. first + n). */
struct cuda_decode {
    uint32_t first_split;
    uint32_t n_splits;
};

/* Input of a batch. The card owns the arrays, sized by cuda_card_limits; the
 * caller fills them between two batches. Rows of padding have the page
 * CUDA_NO_PAGE. */
struct cuda_batch {
    uint32_t prefill_rows; /* with padding */
    uint32_t decode_rows;  /* with padding */
    uint32_t n_table, n_tiles, n_splits, n_decodes, n_wanted;
    uint32_t *tokens;    /* [rows] */
    uint32_t *positions; /* [rows] */
    uint32_t *pages;     /* [rows] page of the row's token */
    uint32_t *table;     /* [n_table] pages of the requests */
    struct cuda_tile *tiles;
    struct cuda_split *splits;
    struct cuda_decode *decodes;
    uint32_t *wanted; /* [n_wanted] rows that want an answer */
};
#define CUDA_NO_PAGE UINT32_MAX

/* Limits of the opened card. */
struct cuda_card_limits {
    uint32_t pages;
    uint32_t rows; /* with padding */
    uint32_t table;
    uint32_t splits;
};

/* A rectangle of a page and of its host block, which have the same layout.
 * With n_blocks > 1: all rows of one layer of consecutive pages and of
 * consecutive blocks in one host allocation. */
struct cuda_piece {
    void *block;
    uint32_t page;
    uint32_t n_blocks;
    uint32_t from_layer;
    uint32_t to_layer;
    uint32_t from_slot; /* rows of K and V of each of the layers */
    uint32_t to_slot;
};

/* Checks whether this process can use a card. Returns 0, or -ENODEV with the
 * reason in err[err_bytes]. */
[[nodiscard]] int cuda_card_present(char *err, size_t err_bytes);

/* Opens the first card, draws the weights and allocates pages there. Returns
 * it owned, or NULL with a message that says what is missing and what to do.
 * Takes seconds for large models. */
[[nodiscard]] struct cuda_card *
cuda_card_open(const struct cuda_card_config *config, char *err,
               size_t err_bytes);

/* Waits for running work and frees everything. NULL is fine. */
void cuda_card_close(struct cuda_card *card);

/* Valid until cuda_card_close(). */
const struct cuda_card_limits *cuda_card_limits(const struct cuda_card *card);
struct cuda_batch *cuda_card_batch(struct cuda_card *card);

/* The last failure; "" = none. */
const char *cuda_card_error(const struct cuda_card *card);

/* Return the name of the card, and of the matrix product implementation. */
const char *cuda_card_name(const struct cuda_card *card);
const char *cuda_card_multiply(const struct cuda_card *card);

/* Returns page-locked host memory, aligned to a page; NULL = none. */
[[nodiscard]] void *cuda_card_host_alloc(struct cuda_card *card, size_t bytes);
void cuda_card_host_free(struct cuda_card *card, void *memory);

/* --- pages for others --- */

/* Bytes of the CUDA IPC handle with which another process opens the pages. */
#define CUDA_HANDLE_BYTES 64

/* Returns the device address of the pages, and their total bytes. */
uint64_t cuda_card_pages(const struct cuda_card *card, uint64_t *bytes);

/* Gets the pages' handle. Returns 0 or -ENOTSUP. */
[[nodiscard]] int cuda_card_handle(struct cuda_card *card,
                                   uint8_t handle[CUDA_HANDLE_BYTES]);

/* Returns a dmabuf of the pages, owned by the caller; -1 = not supported. */
[[nodiscard]] int cuda_card_dmabuf(const struct cuda_card *card);

/* Opens the pages of another process. Returns NULL on failure, or if they have
 * less than `bytes`. Any thread may call this and the functions below. */
[[nodiscard]] void *cuda_card_open_peer(struct cuda_card *card,
                                        const uint8_t handle[CUDA_HANDLE_BYTES],
                                        uint64_t bytes);
void cuda_card_shut_peer(struct cuda_card *card, void *memory);

/* Copies from opened pages through offset `offset` of `page` (CUDA_NO_PAGE =
 * directly) to page-locked host memory, and waits. */
[[nodiscard]] int cuda_card_read_peer(struct cuda_card *card, const void *from,
                                      uint32_t page, uint64_t offset, void *to,
                                      uint64_t bytes);

/* Page-locks memory allocated elsewhere, so that it can be used like that of
 * cuda_card_host_alloc(). Returns 0 or -ENOMEM. */
[[nodiscard]] int cuda_card_adopt(struct cuda_card *card, void *memory,
                                  size_t bytes);
void cuda_card_disown(struct cuda_card *card, void *memory);

/* Begins the batch: uploads its arrays, computes embeddings and angles. */
[[nodiscard]] int cuda_card_begin(struct cuda_card *card);

/* Computes a layer up to its K and V in the pages; then `placed` of the
 * layer. */
[[nodiscard]] int cuda_card_place(struct cuda_card *card, uint32_t layer);

/* Computes the rest of the layer, after the uploads of cuda_card_loaded(). */
[[nodiscard]] int cuda_card_attend(struct cuda_card *card, uint32_t layer);

/* Copies a piece from its block to its page (load stream). */
[[nodiscard]] int cuda_card_upload(struct cuda_card *card,
                                   const struct cuda_piece *piece);

/* Makes the attention of `layer` wait for all uploads so far. */
[[nodiscard]] int cuda_card_loaded(struct cuda_card *card, uint32_t layer);

/* Makes downloads of `layer` wait for its K and V (store stream). */
[[nodiscard]] int cuda_card_store(struct cuda_card *card, uint32_t layer);

/* Copies a piece from its page to its block (store stream). */
[[nodiscard]] int cuda_card_download(struct cuda_card *card,
                                     const struct cuda_piece *piece);

/* Makes `stored` of the layer follow all downloads so far. */
[[nodiscard]] int cuda_card_mark_stored(struct cuda_card *card, uint32_t layer);

/* Returns 1 if the downloads of the layer are done, 0 if not (never with
 * `wait`, which waits), or -ENODEV. */
[[nodiscard]] int cuda_card_stored(struct cuda_card *card, uint32_t layer,
                                   bool wait);

/* Ends the batch: writes answers[n_wanted] for its wanted rows. Waits for the
 * compute stream. */
[[nodiscard]] int cuda_card_finish(struct cuda_card *card, uint32_t *answers);

/* Waits for everything in all streams. */
[[nodiscard]] int cuda_card_wait(struct cuda_card *card);

/* Waits for all downloads. */
[[nodiscard]] int cuda_card_wait_stored(struct cuda_card *card);

/* Makes ticket `ticket` (0 .. CUDA_TICKETS - 1) complete after all uploads so
 * far. */
[[nodiscard]] int cuda_card_ticket(struct cuda_card *card, uint32_t ticket);

/* Returns 1 if the ticket is complete, 0 if not (never with `wait`, which
 * waits), or -ENODEV. */
[[nodiscard]] int cuda_card_ticket_over(struct cuda_card *card, uint32_t ticket,
                                        bool wait);

/* Makes the batch wait for the ticket before it computes. */
[[nodiscard]] int cuda_card_after_ticket(struct cuda_card *card,
                                         uint32_t ticket);

#ifdef __cplusplus
}
#endif

#endif
