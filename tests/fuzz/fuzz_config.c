/* Feeds bytes to the configuration parser; what it takes, it must write and
 * read back to the same values. */
#include <stdlib.h>
#include <string.h>

#include "conductor/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config a, b;
    char err[CONFIG_ERROR_MAX], *text = NULL;
    size_t len = 0;

    if (config_parse(&a, (const char *)data, size, err))
        return 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return 0;
    if (config_dump(&a, f))
        abort();
    fclose(f);
    if (config_parse(&b, text, len, err) || a.engines.n != b.engines.n)
        abort();
    for (size_t i = 0; i < a.engines.n; i++)
        if (!engine_config_equal(&a.engines.at[i], &b.engines.at[i]))
            abort();
    config_fini(&a);
    config_fini(&b);
    b.worker_listen_given = a.worker_listen_given; /* a dump gives all */
    if (memcmp(&a, &b, sizeof(a)))
        abort();
    free(text);
    return 0;
}
