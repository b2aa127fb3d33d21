/* A Content-Type up to the first newline, and any bytes as a body of it. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/form.h"
#include "conductor/json/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    size_t n_type = line ? (size_t)(line - data) : 0;
    size_t n = line ? size - n_type - 1 : 0;
    /* Of their own, so that reading beyond them is seen. */
    char *type = malloc(n_type + 1), *body = malloc(n + 1);
    struct forward_body out;
    struct openai_error error;
    int rc;

    if (!type || !body || !line)
        goto out;
    type = realloc(type, n_type ? n_type : 1);
    body = realloc(body, n ? n : 1);
    if (!type || !body)
        abort();
    memcpy(type, data, n_type);
    memcpy(body, line + 1, n);
    (void)form_type_of(type, n_type);
    rc = form_read(type, n_type, body, n, &out, &error);
    if (rc && (rc != -EINVAL || error.http_status != 400 || !*error.message ||
               *out.model || out.stream))
        abort();
    if (strlen(out.model) >= sizeof(out.model) || out.words || out.n_cuts ||
        utf8_valid_prefix(out.model, strlen(out.model)) < strlen(out.model))
        abort();
out:
    free(type);
    free(body);
    return 0;
}
