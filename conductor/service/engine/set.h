/* All engines of a service. Private to the files of conductor/service. */
#ifndef CONDUCTOR_SERVICE_ENGINE_SET_H
#define CONDUCTOR_SERVICE_ENGINE_SET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "predictor/alike.h"
#include "predictor/learned.h"

struct pair;
TAILQ_HEAD(pair_list, pair);

/* Written by this folder alone, but for pushes, push and pairs, which pair/
 * writes. All 0 in a service of native workers. */
struct engine_set {
    struct engine **by_slot; /* (max_instances), by pool slot; NULL: none */
    uint32_t n;
    uint32_t n_heard;       /* engines whose KV events have come */
    uint32_t n_asked;       /* engines that can be asked for tokens */
    bool costs_due;         /* entries came or left: choose costs anew */
    struct kv_feeds *feeds; /* NULL: no engine publishes KV events */
    const struct store_config *store; /* read by all engines; NULL = none */
    struct kv_feed *store_feed;       /* its events; NULL = none */
    struct learned learned;
    struct alike_model prefills, steps; /* the model's, for comparisons */
    struct learned pushes;  /* of pairs: from a prefill to the first token */
    double push[2];         /* terms of pushes, for estimates */
    struct pair_list pairs; /* pairs that have outlived their requests */
};

#endif
