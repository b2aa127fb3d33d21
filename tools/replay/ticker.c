/* See ticker.h. */
#include "tools/replay/ticker.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define TERMINAL_INTERVAL_US 200000
#define LOG_INTERVAL_US 5000000

void replay_ticker_init(struct replay_ticker *ticker, const char *what,
                        uint64_t total)
{
    *ticker = (struct replay_ticker){.what = what,
                                     .total = total,
                                     .on_terminal = isatty(STDERR_FILENO) == 1,
                                     .shown_us = clock_now_us()};
}

void replay_ticker_show(struct replay_ticker *ticker, uint64_t count)
{
    int64_t now_us = clock_now_us();
    int64_t interval_us =
        ticker->on_terminal ? TERMINAL_INTERVAL_US : LOG_INTERVAL_US;

    if (now_us - ticker->shown_us < interval_us)
        return;
    ticker->shown_us = now_us;
    ticker->has_line = ticker->on_terminal;
    fprintf(stderr, "%s%" PRIu64, ticker->on_terminal ? "\r" : "", count);
    if (ticker->total > 0)
        fprintf(stderr, " of %" PRIu64, ticker->total);
    fprintf(stderr, " %s%s", ticker->what, ticker->on_terminal ? " " : "\n");
}

void replay_ticker_end(struct replay_ticker *ticker)
{
    if (ticker->has_line) {
        fputs("\r\033[K", stderr);
        ticker->has_line = false;
    }
}
