/*
 * A file of lines that the event loop writes and never waits for: a thread
 * does. What it has not written yet is bounded; a line for which there is no
 * room is lost, and counted.
 */
#ifndef CONDUCTOR_SERVICE_ACCESS_LOG_H
#define CONDUCTOR_SERVICE_ACCESS_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of lines that are not written yet. A line is at most half as long. */
#define ACCESS_LOG_BYTES ((size_t)4 << 20)

struct access_log;

/* access_log_open_file(path): opens it to append, made where it is not there;
 * "-": standard output. Returns a descriptor or a negative errno. */
[[nodiscard]] int access_log_open_file(const char *path);

/* access_log_check_file(path): whether it could be opened so; nothing is made.
 * Returns 0 or a negative errno. */
[[nodiscard]] int access_log_check_file(const char *path);

/* access_log_new(log): with no file, and its thread. Returns 0 or a negative
 * errno. */
[[nodiscard]] int access_log_new(struct access_log **log);

/* access_log_take(log, fd): writes there from now on, and takes the descriptor;
 * -1: nowhere. Lines from now on go there; those before it, too, only where it
 * changes twice before the thread has looked. */
void access_log_take(struct access_log *log, int fd);

/* Whether lines are written anywhere. */
bool access_log_is_open(const struct access_log *log);

/* access_log_add(log, line, n): one line with its end; copied. */
void access_log_add(struct access_log *log, const char *line, size_t n);

/* Lines that were lost: no room, or they could not be written. */
uint64_t access_log_lost(struct access_log *log);

/* Bytes of lines that are not written yet, but those that the thread has. */
size_t access_log_waiting(struct access_log *log);

/* access_log_free(log): writes what is left, as far as that makes progress
 * within a second. NULL is a no-op. */
void access_log_free(struct access_log *log);

#endif
