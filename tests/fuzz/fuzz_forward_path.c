/* A method up to the first space, and a path. What goes on to an engine is, as
 * an engine or a proxy may read it, below /v1/ and none that is closed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "conductor/front/openai/body/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int hex_of(char c)
{
    const char *all = "00112233445566778899aAbBcCdDeEfF";
    const char *at = c ? strchr(all, c) : NULL;

    return at ? (int)(at - all) / 2 : -1;
}

/* Every escape is decoded, in place. Returns the bytes that are left. */
static size_t unescape(char *text, size_t n)
{
    size_t to = 0;

    for (size_t i = 0; i < n; i++) {
        int high = text[i] == '%' && i + 2 < n ? hex_of(text[i + 1]) : -1;
        int low = high >= 0 ? hex_of(text[i + 2]) : -1;

        text[to++] = low >= 0 ? (char)(high * 16 + low) : text[i];
        i += low >= 0 ? 2 : 0;
    }
    text[to] = '\0';
    return to;
}

/* Takes "//", "." and ".." out as a proxy does, in place: the segments of a
 * path, joined again. False: it leads above its root. */
static int resolve(char *path)
{
    char *copy = strdup(path), *rest = copy, *part;

    if (!copy)
        abort();
    *path = '\0';
    while ((part = strsep(&rest, "/\\"))) {
        char *end = strrchr(path, '/');

        if (strcmp(part, "..") == 0 && !end) {
            free(copy);
            return 0;
        }
        if (strcmp(part, "..") == 0)
            *end = '\0';
        else if (*part && strcmp(part, ".") != 0)
            strcat(strcat(path, "/"), part);
    }
    free(copy);
    return 1;
}

static void must_be_harmless(const char *at, size_t n)
{
    const char *fragment = memchr(at, '#', n);
    char *path = malloc(n + 2);

    if (fragment)
        n = (size_t)(fragment - at);
    if (!path)
        abort();
    memcpy(path, at, n);
    n = unescape(path, n);
    if (strlen(path) != n || !resolve(path) || strncmp(path, "/v1/", 4) != 0 ||
        strcasecmp(path, "/v1/load_lora_adapter") == 0 ||
        strcasecmp(path, "/v1/unload_lora_adapter") == 0 ||
        strcasecmp(path, "/v1/loads") == 0)
        abort();
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *space = size ? memchr(data, ' ', size) : NULL;
    size_t n_method = space ? (size_t)(space - data) : 0;
    size_t n = space ? size - n_method - 1 : 0;
    /* Of their own, so that reading beyond them is seen. */
    char *method = malloc(n_method ? n_method : 1), *path = malloc(n ? n : 1);

    if (!method || !path)
        abort();
    if (n) {
        memcpy(method, data, n_method);
        memcpy(path, space + 1, n);
        if (forward_path_of((struct http_slice){method, n_method},
                            (struct http_slice){path, n}) ==
                FORWARD_PATH_OPEN &&
            n > 4 && memcmp(path, "/v1/", 4) == 0)
            must_be_harmless(path, n);
        if (!*forward_path_methods((struct http_slice){path, n}))
            abort();
    }
    free(method);
    free(path);
    return 0;
}
