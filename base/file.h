/* Small regular files read as a whole, and files that replace others. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

/* Opens a regular file to read it, and tells its state. Returns its descriptor,
 * -EMEDIUMTYPE if it is none, or what open and fstat report. Waits for nobody:
 * a pipe without a writer is refused like any other. */
[[nodiscard]] int file_open(const char *path, struct stat *about);

/*
 * Reads the regular file at `path`. Returns 0 with *text (owned by the caller,
 * not NUL-terminated) and *size; or -EFBIG if it has more than `most` bytes,
 * -ENOMEM, or what file_open() and read report.
 */
[[nodiscard]] int file_read(const char *path, size_t most, char **text,
                            size_t *size);

/* file_why(rc): why these returned rc. */
const char *file_why(int rc);

/* Reads a file of one key: printable characters, and blanks and line ends
 * behind them, which are left out. Returns NULL with key[size], NUL-terminated,
 * or the reason. */
const char *file_read_key(const char *path, char *key, size_t size);

/* A file that appears only when it is complete: until then what was there
 * before stays. */
struct file_output {
    char path[PATH_MAX];
    char temporary[PATH_MAX + 32]; /* "": written in place */
    FILE *file;                    /* NULL: nothing is open */
};

/* Begins a file beside `path`, or beside what a link leads to; what is no
 * regular file (a pipe, /dev/stdout) is opened itself. Returns 0, or a negative
 * errno with o->file NULL. */
[[nodiscard]] int file_output_open(struct file_output *o, const char *path);

/* With `keep` it is synced and takes the path's place, else it is removed.
 * Nothing if nothing is open. Returns 0 or a negative errno; it is closed
 * anyway. */
[[nodiscard]] int file_output_close(struct file_output *o, bool keep);

#endif
