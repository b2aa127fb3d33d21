/* Any body of /v1/schedule/done: it is read, with numbers in their ranges, or
 * refused with a status and a message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/gateway/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char ticket[SERVICE_TICKET_BYTES];
    struct service_ticket_report report;
    struct openai_error error = {0};

    if (report_read((const char *)data, bytes, ticket, &report, &error)) {
        if (error.http_status != 400 || !*error.message)
            abort();
        return 0;
    }
    if (!memchr(ticket, '\0', sizeof(ticket)) || report.ttft_us < -1 ||
        report.output_tokens < -1 || report.cached_tokens < -1 ||
        report.state > SERVICE_TICKET_FAILED)
        abort();
    return 0;
}
