/*
 * Bodies that are no JSON, as uploaded files: multipart/form-data (RFC 7578;
 * RFC 2046, section 5.1). Of such a body only the model is read, and whether
 * the answer is streamed:
 *
 *   --BOUNDARY\r\n
 *   Content-Disposition: form-data; name="model"\r\n
 *   \r\n
 *   tiny\r\n
 *   --BOUNDARY\r\n
 *   ...
 *   --BOUNDARY--
 *
 * Nothing is taken out of it or set in it.
 */
#ifndef CONDUCTOR_FRONT_OPENAI_FORM_H
#define CONDUCTOR_FRONT_OPENAI_FORM_H

#include "conductor/front/openai/body/body.h"

/* The type of a body, by its Content-Type. */
enum form_type { FORM_JSON, FORM_MULTIPART, FORM_OTHER };

/* Returns the type for the header's value, type[0 .. n); JSON if n is 0. */
enum form_type form_type_of(const char *type, size_t n);

/* Returns whether body[0 .. n) begins as a JSON object does, in UTF-8, 16 or
 * 32: some servers read such a body whatever its type says. O(n). */
bool form_hides_object(const char *body, size_t n);

/*
 * Reads body[0 .. n), whose Content-Type is type[0 .. n_type), into model and
 * stream of *out; nothing in it is a prompt. Files are skipped. Returns 0; or
 * -EINVAL with *error set and *out zeroed: the type names no boundary, no part
 * begins with it, or the field model comes twice or is no text of up to 255
 * bytes. O(n).
 */
[[nodiscard]] int form_read(const char *type, size_t n_type, const char *body,
                            size_t n, struct forward_body *out,
                            struct openai_error *error);

#endif
