/*
 * Logging: one line for each event, to standard error, with UTC time, level,
 * program and text; as text, or as an object of JSON. An error is logged once,
 * where it was first seen, with the identity of the object it concerns.
 *
 * Level, format and the program's name are the only process-wide state of this
 * project: they are set before any thread starts, and by a reload.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR = 0, LOG_WARN = 1, LOG_INFO = 2, LOG_DEBUG = 3 };

enum log_format { LOG_TEXT = 0, LOG_JSON = 1 };

/* log_init(program, level): program must live as long as the process. */
void log_init(const char *program, enum log_level level);

/* log_set_format(format): sets the format of further lines; the default is
 * text. Callable from any thread. */
void log_set_format(enum log_format format);

/* log_format_name(i): returns "text" or "json", as enum log_format, or NULL. */
const char *log_format_name(size_t i);

/* log_level_name(i): returns "error", "warn", "info" or "debug", as enum
 * log_level; NULL = no more. */
const char *log_level_name(size_t i);

/* log_enabled(level): returns whether a line of this level would be written. */
int log_enabled(enum log_level level);

/* log_line(level, format, ...): writes one line; control characters in the text
 * are replaced, so that no input can forge a line. Texts longer than 1,000
 * bytes are cut. In JSON, bytes above ASCII are replaced, too, if the text is
 * not UTF-8. Never blocks: a line is lost if the pipe or terminal has no room,
 * and a later line counts the lost ones. Callable from any thread. */
__attribute__((format(printf, 2, 3))) void log_line(enum log_level level,
                                                    const char *format, ...);

/* log_lines_lost(untold): returns the number of lines lost since the start.
 * *untold: how many of them no later line has reported yet; it only rises while
 * nobody reads the log. Callable from any thread. */
[[nodiscard]] uint64_t log_lines_lost(uint64_t *untold);

/* Log lines of one kind in the current second, for a rate limit. Starts as
 * zero. */
struct log_rate {
    int64_t second_us;
    unsigned lines, left_out;
};

/* log_rate_takes(r, per_s): returns whether another line may be written, at
 * most per_s a second. After suppressed lines, it first logs their number. */
bool log_rate_takes(struct log_rate *r, unsigned per_s);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                        \
    do {                                      \
        if (log_enabled(LOG_DEBUG))           \
            log_line(LOG_DEBUG, __VA_ARGS__); \
    } while (0)

#endif
