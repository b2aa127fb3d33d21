/* Reads the members of JSON that arrives in pieces, and keeps only the text or
 * number that it is reading. It does not check the JSON: bad JSON yields some
 * values or none. Bytes before the first bracket, such as the "data: " of an
 * event, and bytes between two JSON values are skipped. */
#ifndef CONDUCTOR_JSON_PIECES_H
#define CONDUCTOR_JSON_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_PIECES_LEVELS 4u /* deeper ones are skipped */
#define JSON_PIECES_NAME 32   /* a longer name is "" */
#define JSON_PIECES_VALUE 255 /* bytes of a value that are kept */

enum json_piece {
    JSON_PIECE_MORE,  /* all bytes are read */
    JSON_PIECE_VALUE, /* a text, number or word has ended */
    JSON_PIECE_END    /* an object or array has ended */
};

/*
 * All zero before the first byte.
 *   depth  open brackets; at JSON_PIECE_END: those around the value that ended
 *   names  (depth): of the open members; "" in an array
 *   value  (n), of JSON_PIECE_VALUE, as it is spelled; n is JSON_PIECES_VALUE +
 *          1 for a longer one
 */
struct json_pieces {
    uint64_t depth;
    char names[JSON_PIECES_LEVELS][JSON_PIECES_NAME];
    bool is_object[JSON_PIECES_LEVELS];
    bool in_text, in_word, escaped, behind_name;
    bool is_text; /* of JSON_PIECE_VALUE */
    char value[JSON_PIECES_VALUE];
    size_t n;
};

/* json_pieces_next(s, at, end): reads the bytes *at .. end up to the end of a
 * value, object or array, or to `end`, and moves *at behind what it read.
 * O(bytes). */
enum json_piece json_pieces_next(struct json_pieces *s, const char **at,
                                 const char *end);

/* json_pieces_is(s, depth, name): returns whether the open member at this depth
 * (from 1 on) has this name. */
bool json_pieces_is(const struct json_pieces *s, uint64_t depth,
                    const char *name);

#endif
