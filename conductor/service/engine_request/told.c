/* See told.h. */
#include "conductor/service/engine_request/told.h"

#include "conductor/http/parse.h"

/* Whether the value that has ended stands at the place of the id. */
static bool is_id(const struct json_pieces *json)
{
    return json_pieces_is(json, json->depth, "id") &&
           (json->depth == 1 ||
            (json->depth == 2 && json_pieces_is(json, 1, "response")));
}

bool answer_id_read(struct answer_id *a, const char *bytes, size_t n)
{
    const char *end = bytes + n;
    struct json_pieces *json = &a->json;
    enum json_piece what;

    while (!a->over &&
           (what = json_pieces_next(json, &bytes, end)) != JSON_PIECE_MORE) {
        if (what == JSON_PIECE_END) {
            a->over = json->depth == 0 && json->is_object[0];
        } else if (json->is_text && is_id(json)) {
            a->over = true;
            return json->n > 0 && json->n <= ANSWER_ID_MAX;
        }
    }
    return false;
}

/* Returns a whole number up to 2^31 - 1; -1 = any other value. */
static int64_t number(const struct json_pieces *json)
{
    return json->is_text || json->n > 10
               ? -1
               : http_number((struct http_slice){json->value, json->n},
                             INT32_MAX);
}

static void take(struct meta_info *m, uint64_t level)
{
    const struct json_pieces *json = &m->json;

    if (json->depth == level && json_pieces_is(json, level, "index"))
        m->one.index = number(json) + 1;
    if (json->depth != level + 1 || !json_pieces_is(json, level, "meta_info"))
        return;
    if (json_pieces_is(json, level + 1, "prompt_tokens"))
        m->one.prompt = number(json);
    if (json_pieces_is(json, level + 1, "cached_tokens"))
        m->one.cached = number(json) + 1;
}

/* Whether an event is its prompt's first one. Later ones repeat the same. */
static bool is_new(struct meta_info *m)
{
    int64_t i = m->one.index - 1;

    if (i < 0 || i >= META_INFO_PROMPTS)
        return false;
    uint64_t bit = UINT64_C(1) << (i % 64), old = m->seen[i / 64];

    m->seen[i / 64] |= bit;
    return !(old & bit);
}

void meta_info_read(struct meta_info *m, const char *bytes, size_t n)
{
    const char *end = bytes + n;
    struct json_pieces *json = &m->json;
    enum json_piece what;

    while ((what = json_pieces_next(json, &bytes, end)) != JSON_PIECE_MORE) {
        uint64_t level = json->is_object[0] ? 1 : 2; /* of the answers */

        if (what == JSON_PIECE_VALUE) {
            take(m, level);
            continue;
        }
        if (json->depth != level - 1 || !json->is_object[level - 1])
            continue;
        if (m->one.prompt > 0 && (level == 2 || is_new(m))) {
            m->n++;
            m->prompt += m->one.prompt;
            m->cached += m->one.cached > 0 ? m->one.cached - 1 : 0;
            m->cached_told |= m->one.cached > 0;
        }
        m->one.prompt = m->one.cached = m->one.index = 0;
    }
}
