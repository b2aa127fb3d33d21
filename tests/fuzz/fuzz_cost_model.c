/* Any bytes are refused with a message, or give a model whose costs are
 * within their clamp everywhere. */
#include <assert.h>
#include <string.h>

#include "predictor/cost_model_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[128] = "";
    struct cost_model m;
    int rc = cost_model_load_buffer((const char *)data, size, "fuzz", &m, err,
                                    sizeof(err));

    if (rc != 0) {
        assert(strncmp(err, "cost model fuzz: ", 17) == 0);
        assert(!strchr(err, '\n'));
        return 0;
    }
    assert(cost_model_prefill_least_us(&m) >= 0.0);
    const int64_t tokens[] = {0, 1, 1000, m.range.uncached_max_tokens,
                              INT64_MAX};
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 5; j++) {
            int64_t us = cost_model_prefill_us(&m, tokens[i], tokens[j], NULL);

            assert(us >= 1 && us <= COST_MODEL_MAX_US);
            us = cost_model_decode_step_us(&m, tokens[i], tokens[j], NULL);
            assert(us >= 1 && us <= COST_MODEL_MAX_US);
        }
    return 0;
}
