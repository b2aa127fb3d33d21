/* A progress count on stderr: one moving line on a terminal, a line every five
 * seconds elsewhere, nothing if the work ends earlier. */
#ifndef TOOLS_REPLAY_TICKER_H
#define TOOLS_REPLAY_TICKER_H

#include <stdbool.h>
#include <stdint.h>

struct replay_ticker {
    const char *what; /* "requests read", borrowed */
    uint64_t total;   /* 0 = unknown */
    bool on_terminal;
    bool has_line; /* an unfinished line is shown */
    int64_t shown_us;
};

/* Starts at 0; checks whether stderr is a terminal. */
void replay_ticker_init(struct replay_ticker *ticker, const char *what,
                        uint64_t total);

/* Shows the count if its next update is due. */
void replay_ticker_show(struct replay_ticker *ticker, uint64_t count);

/* Removes the moving line. */
void replay_ticker_end(struct replay_ticker *ticker);

#endif
