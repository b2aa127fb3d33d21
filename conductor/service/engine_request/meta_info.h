/*
 * Sums the tokens in SGLang's answer to several prompts, which has a meta_info
 * for each prompt: in an array of answers, or in each event of a stream, by its
 * `index`. Pure.
 */
#ifndef CONDUCTOR_SERVICE_ENGINE_REQUEST_META_INFO_H
#define CONDUCTOR_SERVICE_ENGINE_REQUEST_META_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/json/pieces.h"

/* Most prompts of a stream; further ones are not counted. */
#define META_INFO_PROMPTS 1024

/* Zeros before the first byte; prompt and cached are sums over n prompts. */
struct meta_info {
    struct json_pieces json;
    uint32_t n;
    int64_t prompt, cached;
    bool cached_told;
    struct {
        int64_t prompt;                    /* 0 = not told */
        int64_t cached, index;             /* plus 1; 0 = not told */
    } one;                                 /* the answer that is being read */
    uint64_t seen[META_INFO_PROMPTS / 64]; /* of a stream, by index */
};

/* meta_info_read(m, bytes, n): the answer's next n bytes. O(n). */
void meta_info_read(struct meta_info *m, const char *bytes, size_t n);

#endif
