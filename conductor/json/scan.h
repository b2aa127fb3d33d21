/*
 * One pass over a request body that takes the prompt out of it.
 *
 * A prompt is nearly all of a body's bytes. Its token ids go into a flat array
 * and its texts into a flat byte buffer; the rest (`rest`) is the body with
 * every text or id array cut out, small enough for a general JSON parser, which
 * also does the checking of everything that stays.
 *
 *   {"model":"tiny","prompt":[5,6,7],"n":1}
 *     rest   {"model":"tiny","prompt":null,"n":1}
 *     ids    5 6 7      spans {0,3}
 *
 * In a chat each message's text is cut out and replaced by true, which can
 * never stand there by itself (the scan refuses it):
 *
 *   {"messages":[{"role":"user","content":"Hi"}]}
 *     rest   {"messages":[{"role":"user","content":true}]}
 *     bytes  Hi         spans {0,2}
 */
#ifndef CONDUCTOR_JSON_SCAN_H
#define CONDUCTOR_JSON_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/json/walk.h"

enum json_scan_kind {
    JSON_SCAN_PROMPT,  /* top-level "prompt" */
    JSON_SCAN_MESSAGES /* texts in top-level "messages" */
};

enum json_scan_form {
    JSON_FORM_NONE,      /* no prompt, or null */
    JSON_FORM_TEXT,      /* "text": one span of bytes */
    JSON_FORM_TEXTS,     /* ["text", ..]: a span of bytes each */
    JSON_FORM_IDS,       /* [1, 2]: one span of ids; [] too */
    JSON_FORM_ID_ARRAYS, /* [[1, 2], ..]: a span of ids each */
    JSON_FORM_MESSAGES   /* a span of bytes per text, in document order */
};

struct json_span {
    size_t start; /* index into bytes or ids */
    size_t count;
};

struct json_scan_limits {
    size_t max_spans;       /* prompts in a batch, or texts in a chat */
    size_t max_rest_bytes;  /* everything but the prompt */
    size_t max_depth;       /* brackets inside brackets */
    size_t max_span_bytes;  /* of one prompt, or of all texts of a chat, as
                               spelled; 0 = unlimited */
    size_t max_rest_values; /* beside the prompt, at any depth; 0 = unlimited */
};

struct json_scan {
    enum json_scan_form form;
    uint32_t *ids; /* owned */
    size_t n_ids;
    char *bytes; /* owned, valid UTF-8 per span */
    size_t n_bytes;
    struct json_span *spans; /* owned */
    size_t n_spans;
    char *rest; /* owned, not terminated */
    size_t rest_bytes;
    /* set when the scan fails with -EINVAL */
    size_t error_at;         /* offset in the body */
    const char *error_param; /* "prompt", "messages", `large` or NULL */
    char large[64]; /* member of over half of max_rest_bytes, if its name fits;
                       "" = none */
    char error[JSON_WALK_ERROR_BYTES];
};

/*
 * Scans body[0 .. n), borrowed. `out` is overwritten; the caller gives it to
 * json_scan_fini() in any case. Returns 0, -EINVAL with the error fields set,
 * or -ENOMEM. The rest isn't fully checked: parse it. O(n).
 */
[[nodiscard]] int json_scan(const char *body, size_t n,
                            enum json_scan_kind kind,
                            const struct json_scan_limits *limits,
                            struct json_scan *out);

/* Frees what a scan owns. A zeroed struct is fine. */
void json_scan_fini(struct json_scan *scan);

#endif
