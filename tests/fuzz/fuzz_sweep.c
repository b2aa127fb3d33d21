/* Any bytes are refused with a message of one line, or describe a sweep whose
 * cases can be drawn within its ranges. */
#include <assert.h>
#include <string.h>

#include "tools/replay/study/sweep/draw.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sweep_description d;
    char err[SWEEP_ERROR_BYTES] = "";
    struct sweep_draw draw;

    if (sweep_description_parse((const char *)data, size, "fuzz", &d, err) !=
        0) {
        assert(err[0] != '\0' && !strchr(err, '\n'));
        return 0;
    }
    for (uint64_t k = 0; k < 4; k++) {
        sweep_draw(&d, 1, k, &draw);
        assert(draw.nodes >= 2 && draw.nodes <= CLUSTER_SPEEDS_MAX);
        assert(draw.requests >= 1 && draw.requests <= SWEEP_REQUESTS_MAX);
        assert(draw.load >= d.load.least && draw.load <= d.load.most);
    }
    return 0;
}
