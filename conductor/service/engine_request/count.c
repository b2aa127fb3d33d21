/* See count.h. */
#include "conductor/service/engine_request/count.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct count count_prompt(const struct count_facts *facts)
{
    int64_t known = facts->known > 1 ? facts->known : 1;
    int64_t had = smaller(facts->cached > 0 ? facts->cached : 0, known);
    struct count c = {.prompt = known,
                      .predicted = had,
                      .prompt_told = facts->told_prompt > 0,
                      .cached_told = facts->told_cached >= 0};

    if (c.prompt_told) {
        c.prompt = smaller(facts->told_prompt, facts->most);
        if (!facts->exact)
            c.predicted = (had * c.prompt + known / 2) / known;
    } else if (!facts->exact && facts->told_cached > known) {
        c.prompt = smaller(facts->told_cached, facts->most);
        c.prompt = c.prompt > known ? c.prompt : known;
    }
    c.predicted = smaller(c.predicted, c.prompt);
    c.cached =
        smaller(c.cached_told ? facts->told_cached : c.predicted, c.prompt);
    c.comparable = c.cached_told && (c.prompt_told || facts->exact);
    return c;
}
