/*
 * A file of lines that a thread writes, so that the event loop never waits for
 * it. The buffer is bounded; a line without room is lost, and counted.
 */
#ifndef CONDUCTOR_SERVICE_ACCESS_LOG_H
#define CONDUCTOR_SERVICE_ACCESS_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of both buffers; a line has at most half of them. */
#define ACCESS_LOG_BYTES ((size_t)4 << 20)

struct access_log;

/* access_log_open_file(path): opens or creates a file to append to; "-" =
 * standard output. Returns a descriptor, owned, or a negative errno. */
[[nodiscard]] int access_log_open_file(const char *path);

/* access_log_check_file(path): checks that access_log_open_file() would
 * succeed, without creating the file. Returns 0 or a negative errno. */
[[nodiscard]] int access_log_check_file(const char *path);

/* access_log_new(log): creates a log without a file, and starts its thread.
 * Returns 0 with *log owned, or a negative errno. */
[[nodiscard]] int access_log_new(struct access_log **log);

/* access_log_take(log, fd): writes later lines to fd, which it takes; -1 =
 * nowhere. If fd changes twice before the thread looks, all lines not yet
 * written go to the last one. */
void access_log_take(struct access_log *log, int fd);

/* Returns whether the log has a file. */
bool access_log_is_open(const struct access_log *log);

/* access_log_add(log, line, n): adds a line of n bytes with its line end;
 * copied. */
void access_log_add(struct access_log *log, const char *line, size_t n);

/* Returns the number of lines lost, for lack of room or by a write error. */
uint64_t access_log_lost(struct access_log *log);

/* Returns the buffered bytes, without those that the thread is writing. */
size_t access_log_waiting(struct access_log *log);

/* access_log_free(log): writes the rest, and gives up after a second if the
 * file takes no more. Closes the file. NULL is a no-op. */
void access_log_free(struct access_log *log);

#endif
