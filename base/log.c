/* Logging to standard error, one line an event. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static const char *log_program = "?";
static enum log_level log_threshold = LOG_INFO;

void log_init(const char *program, enum log_level level)
{
    log_program = program;
    log_threshold = level;
}

const char *log_level_name(size_t i)
{
    return i <= LOG_DEBUG ? level_names[i] : NULL;
}

int log_enabled(enum log_level level)
{
    return level <= log_threshold;
}

void log_line(enum log_level level, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    char text[1000];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127)
            *p = '?';
    struct timeval tv;
    struct tm tm;
    gettimeofday(&tv, NULL);
    gmtime_r(&tv.tv_sec, &tm);
    char line[1200];
    int n = snprintf(line, sizeof(line),
                     "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %-5s %s: %s\n",
                     tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                     tm.tm_min, tm.tm_sec, (int)(tv.tv_usec / 1000),
                     level_names[level], log_program, text);
    /* One write, so that lines of several threads don't mix. */
    ssize_t written = write(STDERR_FILENO, line, (size_t)n);
    (void)written;
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
