/* Errors: a message for people and a code for the caller, in one statement. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Writes a message into err[err_bytes], printf-style. Returns rc. */
__attribute__((format(printf, 4, 5))) static inline int
error_say(char *err, size_t err_bytes, int rc, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(err, err_bytes, format, args);
    va_end(args);
    return rc;
}

/* As error_say(), for functions that return a pointer. */
#define error_null(err, err_bytes, ...) \
    (error_say(err, err_bytes, 0, __VA_ARGS__), NULL)

#endif
