/* A traceparent, and the same bytes as an answer of a receiver of spans. What
 * is taken for a context is one after it was written, too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/service/spans/context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int64_t most_us = 300000000;
    const char *text = (const char *)data;
    struct trace_context c, again;
    char written[TRACEPARENT_BYTES], why[256];

    if (trace_context_parse(text, size, &c)) {
        trace_context_write(&c, written);
        if (strlen(written) != TRACEPARENT_BYTES - 1 ||
            !trace_context_parse(written, TRACEPARENT_BYTES - 1, &again) ||
            strcmp(c.trace, again.trace) != 0 ||
            strcmp(c.span, again.span) != 0 || c.sampled != again.sampled ||
            memcmp(text + 3, c.trace, TRACE_HEX) != 0)
            abort();
    }
    (void)otlp_rejected(text, size, why);
    if (strlen(why) >= sizeof(why))
        abort();
    int64_t us = otlp_retry_after_us(text, size, most_us);
    if (us < 0 || us > most_us)
        abort();
    return 0;
}
