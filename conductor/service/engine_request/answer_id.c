/* See answer_id.h. */
#include "conductor/service/engine_request/answer_id.h"

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
