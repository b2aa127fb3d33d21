/* See contents.h. */
#include "conductor/config/contents.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/secret.h"
#include "conductor/config/internal.h"

#define FILE_MAX_BYTES (4u << 20)

/* The options that name these files, and where the names are. */
static const struct {
    const char *option;
    size_t at;
} files[CONFIG_CONTENTS] = {
    {"cost_model", offsetof(struct config, cost_model)},
    {"tenants_file", offsetof(struct config, tenants_file)},
    {"admin_key_file", offsetof(struct config, admin_key_file)},
    {"tls_certificate", offsetof(struct config, tls_certificate)},
    {"tls_key", offsetof(struct config, tls_key)},
    {"worker_tls_certificate", offsetof(struct config, worker_tls_certificate)},
    {"worker_tls_key", offsetof(struct config, worker_tls_key)},
};

static const char *path_of(const struct config *c, size_t i)
{
    return (const char *)c + files[i].at;
}

void config_contents_read(const struct config *c, struct config_contents *out)
{
    *out = (struct config_contents){{{0}}};
    for (size_t i = 0; i < CONFIG_CONTENTS; i++) {
        const char *path = path_of(c, i);
        char *text;
        size_t n;

        if (!*path || file_read(path, FILE_MAX_BYTES, &text, &n))
            continue;
        if (secret_digest(text, n, out->digest[i]))
            memset(out->digest[i], 0, sizeof(out->digest[i]));
        free(text);
    }
}

void config_contents_compare(const struct config *old,
                             const struct config_contents *was,
                             const struct config *next,
                             const struct config_contents *is,
                             struct config_changes *changes)
{
    for (size_t i = 0; i < CONFIG_CONTENTS; i++)
        if (strcmp(path_of(old, i), path_of(next, i)) == 0 &&
            memcmp(was->digest[i], is->digest[i], sizeof(was->digest[i])) != 0)
            config_names_add(changes->taken, files[i].option);
}
