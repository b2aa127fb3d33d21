/*
 * Reads what an engine's answer tells in its middle, as it comes. Pure.
 */
#ifndef CONDUCTOR_SERVICE_ENGINE_REQUEST_TOLD_H
#define CONDUCTOR_SERVICE_ENGINE_REQUEST_TOLD_H

#include "conductor/json/pieces.h"

#define ANSWER_ID_MAX JSON_PIECES_VALUE /* bytes; a longer one is not found */

/* The id under which an engine keeps an answer of /v1/responses: the `id` of
 * the answer's own object, or, in a stream, of `response` in the first event.
 * Ids elsewhere do not count: an engine may echo the client's text there. Zeros
 * before the first byte. */
struct answer_id {
    struct json_pieces json;
    bool over; /* it was found, or the first object has ended */
};

/* answer_id_read(a, bytes, n): reads the answer's next n bytes. Returns whether
 * they complete the id, which is then a->json.value (a->json.n), as it is
 * spelled. O(n) up to the end of the first object, O(1) behind it. */
bool answer_id_read(struct answer_id *a, const char *bytes, size_t n);

/* Most prompts of a stream; further ones are not counted. */
#define META_INFO_PROMPTS 1024

/* Tokens in SGLang's answer to several prompts, which has a meta_info for each
 * prompt: in an array of answers, or in each event of a stream, by its `index`.
 * Zeros before the first byte; prompt and cached are sums over n prompts. */
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

/* meta_info_read(m, bytes, n): reads the answer's next n bytes. O(n). */
void meta_info_read(struct meta_info *m, const char *bytes, size_t n);

#endif
