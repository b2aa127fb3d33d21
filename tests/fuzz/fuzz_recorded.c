/* Any line is refused with a message of one line, or is a session whose turns
 * all get their answers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "traces/recorded/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Answers each turn in the order of the line: what waits for it stands behind
 * it. */
static void check_waits(const struct recorded_session *s)
{
    uint32_t *waits = calloc(s->n_turns, sizeof(*waits));

    if (!waits)
        return;
    for (uint32_t i = 0; i < s->n_turns; i++) {
        const struct recorded_turn *t = &s->turns[i];

        assert((t->after == RECORDED_NONE) == (i == 0));
        assert(i == 0 || t->after < i);
        assert(t->pause_us >= 0);
        waits[i] += i > 0;
        if (t->joins != RECORDED_NONE) {
            assert(t->joins > i && s->turns[t->joins].agent == 0);
            waits[t->joins]++;
        }
    }
    for (uint32_t i = 0; i < s->n_turns; i++)
        assert(waits[i] == s->turns[i].waits);
    free(waits);
}

/* An id for every block, none above the last. */
static void check_ids(const struct recorded_session *s, uint32_t turn)
{
    uint32_t n = recorded_blocks(s, turn);
    uint64_t *ids = malloc((n + 1) * sizeof(*ids));

    if (!ids)
        return;
    memset(ids, 0xff, (n + 1) * sizeof(*ids));
    recorded_session_ids(s, turn, ids);
    for (uint32_t i = 0; i < n; i++)
        assert(ids[i] <= s->last_id);
    assert(ids[n] == UINT64_MAX);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char empty[] = "";
    struct recorded_session s = {0};
    char error[256] = "";
    int rc = recorded_session_read(size > 0 ? (const char *)data : empty, size,
                                   &s, error, sizeof(error));

    if (rc != 0) {
        assert(error[0] != '\0' && !strchr(error, '\n'));
    } else {
        assert(s.n_turns > 0 && s.n_turns <= RECORDED_TURNS_MAX);
        assert(s.shared_blocks <= recorded_blocks(&s, 0));
        check_waits(&s);
        for (uint32_t i = 0; i < s.n_turns && i < 16; i++)
            check_ids(&s, i);
    }
    recorded_session_fini(&s);
    return 0;
}
