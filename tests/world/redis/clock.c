/* The clock of a redis-server that is started with this in LD_PRELOAD: the
 * microseconds since 1970 that stand in the file REDIS_CLOCK, so that a test
 * moves it. Its monotonic clock goes on. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shown_us;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("REDIS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at;

    if (fd < 0)
        abort();
    at = mmap(NULL, sizeof(*shown_us), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        abort();
    shown_us = at;
}

int gettimeofday(struct timeval *restrict tv, void *restrict)
{
    int64_t us = *shown_us;

    tv->tv_sec = us / 1000000;
    tv->tv_usec = us % 1000000;
    return 0;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, id, ts);
    int64_t us = *shown_us;

    ts->tv_sec = us / 1000000;
    ts->tv_nsec = us % 1000000 * 1000;
    return 0;
}

time_t time(time_t *t)
{
    time_t s = *shown_us / 1000000;

    if (t)
        *t = s;
    return s;
}
