/* See member.h. */
#include "conductor/cluster/member.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads digits[0 .. n) in a base. Returns false if they are no number. */
static bool take_number(const char *digits, size_t n, int base, uint64_t *out)
{
    static const char known[] = "0123456789abcdef";
    uint64_t value = 0;

    if (n == 0 || n > 20)
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *at = memchr(known, digits[i], (size_t)base);
        uint64_t digit = at ? (uint64_t)(at - known) : 0;

        if (!at || value > (UINT64_MAX - digit) / (unsigned)base)
            return false;
        value = value * (unsigned)base + digit;
    }
    *out = value;
    return true;
}

int member_read(const char *id, size_t n_id, const char *text, size_t n,
                struct member *m)
{
    const char *model = n ? memchr(text, ' ', n) : NULL;
    const char *at =
        model ? memchr(model + 1, ' ', n - (size_t)(model + 1 - text)) : NULL;
    char address[MEMBER_TEXT_MAX];
    struct member read = {0};

    if (!at || n - (size_t)(at + 1 - text) >= sizeof(address) ||
        n_id != MEMBER_ID_BYTES || !take_number(id, n_id, 16, &read.id) ||
        read.id == 0 ||
        !take_number(text, (size_t)(model - text), 10, &read.token) ||
        !take_number(model + 1, (size_t)(at - model - 1), 16, &read.model))
        return -EINVAL;
    snprintf(address, sizeof(address), "%.*s",
             (int)(n - (size_t)(at + 1 - text)), at + 1);
    if (strcmp(address, "-") != 0 && address_parse(address, &read.at))
        return -EINVAL;
    *m = read;
    return 0;
}

void member_write(const struct member *m, char text[MEMBER_TEXT_MAX])
{
    bool v6 = strchr(m->at.host, ':');

    if (m->at.port == 0)
        snprintf(text, MEMBER_TEXT_MAX, "%" PRIx64 " -", m->model);
    else
        snprintf(text, MEMBER_TEXT_MAX, "%" PRIx64 " %s%s%s:%u", m->model,
                 v6 ? "[" : "", m->at.host, v6 ? "]" : "", m->at.port);
}

void member_id(uint64_t id, char text[MEMBER_ID_BYTES + 1])
{
    snprintf(text, MEMBER_ID_BYTES + 1, "%016" PRIx64, id);
}
