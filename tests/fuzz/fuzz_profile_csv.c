/* Any bytes are refused with a message, or give rows within their bounds. */
#include <assert.h>
#include <string.h>

#include "predictor/profile_csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rows(const struct profile_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct profile_row *row = &rows->row[i];

        assert(row->a >= 1 && row->a <= PROFILE_MAX_TOKENS);
        assert(row->b >= 0 && row->b <= PROFILE_MAX_TOKENS);
        assert(row->us > 0.0 && row->us <= (double)COST_MODEL_MAX_US);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[128] = "";
    struct profile p = {0};

    /* Twice, so that the rules for a second file are reached. */
    for (int i = 0; i < 2; i++) {
        int rc =
            profile_add(&p, (const char *)data, size, "fuzz", err, sizeof(err));

        if (rc != 0) {
            assert(strncmp(err, "fuzz:", 5) == 0);
            assert(!strchr(err, '\n'));
            break;
        }
        assert(p.engine[0] != '\0' && p.date[0] != '\0');
    }
    check_rows(&p.prefill);
    check_rows(&p.decode);
    profile_fini(&p);
    return 0;
}
