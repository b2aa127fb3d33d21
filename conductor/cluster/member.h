/* A conductor in the registry, as text: "TOKEN MODEL HOST:PORT". Pure. */
#ifndef CONDUCTOR_CLUSTER_MEMBER_H
#define CONDUCTOR_CLUSTER_MEMBER_H

#include <stddef.h>
#include <stdint.h>

#include "base/address.h"

#define MEMBER_TEXT_MAX (ADDRESS_HOST_MAX + 64)
#define MEMBER_ID_BYTES 16 /* hexadecimal digits */

struct member {
    uint64_t id;       /* random, new at each start; never 0 */
    uint64_t token;    /* of its lease */
    uint64_t model;    /* names_of_text() of the workers' model; 0 = none */
    struct address at; /* where it takes workers; port 0 = nowhere */
};

/* member_read(id, n_id, text, n, m): reads a conductor as it is in the
 * registry. Returns 0, or -EINVAL with *m untouched. */
[[nodiscard]] int member_read(const char *id, size_t n_id, const char *text,
                              size_t n, struct member *m);

/* member_write(m, text): writes the text behind the token. */
void member_write(const struct member *m, char text[MEMBER_TEXT_MAX]);

/* member_id(id, text): writes the digits of an id. */
void member_id(uint64_t id, char text[MEMBER_ID_BYTES + 1]);

#endif
