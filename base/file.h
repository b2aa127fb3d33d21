/* Small regular files read as a whole, and files that replace others. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

/* Opens a regular file for reading, and writes its state to *about. Returns
 * its descriptor; -EMEDIUMTYPE if it is no regular file; or an error of open or
 * fstat. Does not block on a pipe. */
[[nodiscard]] int file_open(const char *path, struct stat *about);

/*
 * Reads the regular file at `path`. Returns 0 with *text (owned by the caller,
 * not NUL-terminated) and *size; or -EFBIG if it has more than `most` bytes,
 * -ENOMEM, or an error of file_open() or read.
 */
[[nodiscard]] int file_read(const char *path, size_t most, char **text,
                            size_t *size);

/* Reads the pipe `fd` to its end; otherwise as file_read(). Blocks. */
[[nodiscard]] int file_read_pipe(int fd, size_t most, char **text,
                                 size_t *size);

/* file_why(rc): returns a text for an error of the functions above. */
const char *file_why(int rc);

/* Reads a file with one key of printable characters; drops blanks and line
 * ends after it. Returns NULL with key[size], NUL-terminated, or the reason it
 * cannot. */
const char *file_read_key(const char *path, char *key, size_t size);

/* A file that appears only when it is complete; until then an existing file
 * stays. */
struct file_output {
    char path[PATH_MAX];
    char temporary[PATH_MAX + 80]; /* "" = written in place */
    FILE *file;                    /* NULL = not open */
};

/* Begins a temporary file beside `path`, or beside the target of a link; opens
 * anything but a regular file (a pipe, /dev/stdout) directly. Removes temporary
 * files of this path that killed processes left an hour ago or earlier: those
 * that no process has locked. Returns 0, or a negative errno with o->file NULL.
 * O(files in the folder). */
[[nodiscard]] int file_output_open(struct file_output *o, const char *path);

/* Closes the file. With `keep` it is synced and replaces `path`, else it is
 * removed. No-op if not open. Returns 0 or a negative errno. */
[[nodiscard]] int file_output_close(struct file_output *o, bool keep);

#endif
