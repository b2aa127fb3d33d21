/* Logging to standard error, one line an event. */
#include "base/log.h"

#include <jansson.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static const char *const format_names[] = {"text", "json"};

#define TEXT_BYTES 1000
#define TIME_BYTES 32
#define LINE_BYTES (2 * TEXT_BYTES + 200) /* every byte of a text escaped */

static const char *log_program = "?";
static _Atomic enum log_level log_threshold = LOG_INFO;
static _Atomic enum log_format log_format = LOG_TEXT;
/* Counts of lines: lost since the start; and of those, told by a later one. */
static _Atomic uint64_t log_lost, log_told;

void log_init(const char *program, enum log_level level)
{
    log_program = program;
    log_threshold = level;
}

void log_set_format(enum log_format format)
{
    log_format = format;
}

const char *log_format_name(size_t i)
{
    return i <= LOG_JSON ? format_names[i] : NULL;
}

const char *log_level_name(size_t i)
{
    return i <= LOG_DEBUG ? level_names[i] : NULL;
}

int log_enabled(enum log_level level)
{
    return level <= log_threshold;
}

static void put_time(char out[TIME_BYTES])
{
    int64_t us = clock_wall_us();
    const time_t now_s = us / 1000000;
    struct tm tm;
    char s[TIME_BYTES - 8];

    gmtime_r(&now_s, &tm);
    strftime(s, sizeof(s), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, TIME_BYTES, "%s.%03dZ", s, (int)(us % 1000000 / 1000));
}

/* Returns the line's length; 0 = no UTF-8, or out of memory. */
static size_t json_line(enum log_level level, const char *time,
                        const char *text, char out[LINE_BYTES])
{
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:s}", "time", time, "level",
                  level_names[level], "program", log_program, "message", text);
    size_t n = line ? json_dumpb(line, out, LINE_BYTES - 1, JSON_COMPACT) : 0;

    json_decref(line);
    if (n == 0 || n >= LINE_BYTES)
        return 0;
    out[n] = '\n';
    return n + 1;
}

static size_t make_line(enum log_level level, char *text, char out[LINE_BYTES])
{
    char time[TIME_BYTES];
    size_t n = 0;

    put_time(time);
    if (log_format == LOG_JSON) {
        n = json_line(level, time, text, out);
        for (char *p = text; n == 0 && *p; p++)
            if (*p & 0x80)
                *p = '?';
        n = n ? n : json_line(level, time, text, out);
    }
    return n ? n
             : (size_t)snprintf(out, LINE_BYTES, "%s %-5s %s: %s\n", time,
                                level_names[level], log_program, text);
}

/* Returns whether a line can be written without waiting. A writable pipe takes
 * at least PIPE_BUF bytes, more than any line. */
static bool has_room(void)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&out, 1, 0) != 0;
}

/* Never waits for a stalled log reader: lines are lost instead, and the next
 * line written counts them. */
static void put_line(enum log_level level, char *text)
{
    char line[LINE_BYTES];
    ssize_t written;

    if (!has_room()) {
        log_lost++;
        return;
    }
    uint64_t told = log_told, lost = log_lost - told;
    if (lost && atomic_compare_exchange_strong(&log_told, &told, told + lost)) {
        char note[80];

        snprintf(note, sizeof(note),
                 "%llu lines were lost: the log was not read",
                 (unsigned long long)lost);
        written = write(STDERR_FILENO, line, make_line(LOG_WARN, note, line));
        if (!has_room()) {
            log_lost++;
            return;
        }
    }
    /* One write, so that lines of several threads don't mix. */
    written = write(STDERR_FILENO, line, make_line(level, text, line));
    (void)written;
}

uint64_t log_lines_lost(uint64_t *untold)
{
    uint64_t told = log_told, lost = log_lost; /* in this order */

    *untold = lost - told;
    return lost;
}

void log_line(enum log_level level, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    char text[TEXT_BYTES];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127)
            *p = '?';
    put_line(level, text);
}

bool log_rate_takes(struct log_rate *r, unsigned per_s)
{
    int64_t now_us = clock_now_us();

    if (r->second_us == 0 || now_us - r->second_us >= 1000000) {
        if (r->left_out)
            log_warn("%u lines like the next were left out", r->left_out);
        *r = (struct log_rate){.second_us = now_us};
    }
    if (r->lines >= per_s) {
        r->left_out++;
        return false;
    }
    r->lines++;
    return true;
}
