/*
 * The id under which an engine keeps an answer of /v1/responses: that of the
 * object that the answer is, or, in a stream, of the response in its first
 * event. No id that stands elsewhere in it, as an engine may put there what the
 * client said. Pure: the bytes come in pieces, and none but the id's are kept.
 */
#ifndef CONDUCTOR_SERVICE_FORWARD_ANSWER_ID_H
#define CONDUCTOR_SERVICE_FORWARD_ANSWER_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWER_ID_MAX 255 /* bytes; a longer one is not found */

enum answer_id_member { ANSWER_ID_OTHER, ANSWER_ID_ID, ANSWER_ID_RESPONSE };

/*
 * All zero before the first byte.
 *   depth  brackets that are open
 *   level  of them those whose members are read: 1, or 2 in `response`
 *   text   (n), of the text that p is inside of, or of the id; n is
 *          ANSWER_ID_MAX + 1 for a longer text
 */
struct answer_id {
    uint64_t depth, level;
    enum answer_id_member member;
    bool in_text, escaped, in_value;
    bool over; /* found, or the first object has ended */
    char text[ANSWER_ID_MAX];
    size_t n;
};

/* answer_id_read(a, bytes, n): the answer's next n bytes. Returns whether they
 * complete the id, which is then a->text (a->n), as it is spelled. O(n) up to
 * the end of the first object, O(1) behind it. */
bool answer_id_read(struct answer_id *a, const char *bytes, size_t n);

#endif
