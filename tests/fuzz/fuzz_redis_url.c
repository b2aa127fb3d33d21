/* A URL of Redis. What is taken has addresses; no message and no view of it
 * tells what stands between the last colon and the last at sign. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/redis/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char err[256] = "", shown[REDIS_URL_MAX];
    struct redis_url url;

    if (!text)
        abort();
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    if (redis_url_parse(text, &url, err, sizeof(err)) == 0) {
        if (url.n == 0 || url.n > REDIS_ADDRESSES_MAX)
            abort();
        for (unsigned i = 0; i < url.n; i++)
            if (!*url.at[i].host)
                abort();
        redis_url_shown(text, shown, sizeof(shown));
        const char *at = strrchr(shown, '@');

        if (*url.password && (!at || at - shown < 3 || at[-1] != '*'))
            abort();
    } else if (!*err) {
        abort();
    }
    free(text);
    return 0;
}
