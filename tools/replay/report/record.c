/* See record.h. */
#include "tools/replay/report/record.h"

void replay_copy_text(char *to, size_t size, const char *from)
{
    size_t n = 0;

    while (from && from[n] != '\0' && n + 1 < size) {
        to[n] = from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
        n++;
    }
    to[n] = '\0';
}

const char *replay_outcome_name(enum replay_outcome outcome)
{
    switch (outcome) {
    case REPLAY_COMPLETED:
        return "completed";
    case REPLAY_REJECTED:
        return "rejected";
    case REPLAY_FAILED:
        return "failed";
    case REPLAY_PENDING:
        break;
    }
    return "pending";
}
