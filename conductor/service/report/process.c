/* Metrics of the process, with the names of Prometheus's client libraries, and
 * the version. */
#include <dirent.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/report/internal.h"
#include "conductor/service/report/limits.h"

#define GROUPS_ROOT "/sys/fs/cgroup"
#define GROUPS_FILE "/proc/self/cgroup"

/* Newer kernels give the number as the folder's size; else count the names. */
static double open_files(void)
{
    struct stat st;
    double n = -3; /* not ".", ".." and the folder itself */
    DIR *dir;

    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
        return (double)st.st_size;
    dir = opendir("/proc/self/fd");
    if (!dir)
        return 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void read_memory(double *virtual_bytes, double *resident_bytes)
{
    unsigned long long pages = 0, resident = 0;
    double page = (double)sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/proc/self/statm", "re");

    if (f && fscanf(f, "%llu %llu", &pages, &resident) != 2)
        pages = resident = 0;
    if (f)
        fclose(f);
    *virtual_bytes = (double)pages * page;
    *resident_bytes = (double)resident * page;
}

/* Returns the least of the machine's memory, RLIMIT_AS, and the limits of the
 * process's control group and of those above it. */
static double memory_limit(void)
{
    double most =
        (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    struct rlimit space;

    most = limits_memory(GROUPS_ROOT, GROUPS_FILE, most);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        (double)space.rlim_cur < most)
        most = (double)space.rlim_cur;
    return most;
}

/* Returns the number of cores that the process may run on, or the part of them
 * that its control groups allow. */
static double cpu_limit(void)
{
    cpu_set_t cores;
    double most = sched_getaffinity(0, sizeof(cores), &cores) == 0
                      ? CPU_COUNT(&cores)
                      : (double)sysconf(_SC_NPROCESSORS_ONLN);

    return limits_cpus(GROUPS_ROOT, GROUPS_FILE, most);
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

int report_process(double start_s, struct text_buf *out)
{
    struct rusage usage = {0};
    struct rlimit files = {0};
    double virtual_bytes, resident_bytes;
    int bad;

    getrusage(RUSAGE_SELF, &usage);
    getrlimit(RLIMIT_NOFILE, &files);
    read_memory(&virtual_bytes, &resident_bytes);
    const struct {
        const char *name, *type, *help;
        double value;
    } all[] = {
        {"cpu_seconds_total", "counter", "CPU time used, user and system.",
         seconds(usage.ru_utime) + seconds(usage.ru_stime)},
        {"open_fds", "gauge", "Open file descriptors.", open_files()},
        {"max_fds", "gauge", "Limit on open file descriptors.",
         (double)files.rlim_cur},
        {"virtual_memory_bytes", "gauge", "Virtual memory.", virtual_bytes},
        {"resident_memory_bytes", "gauge", "Resident memory.", resident_bytes},
        {"start_time_seconds", "gauge",
         "Start time of the process, in Unix time.", start_s},
    };
    uint64_t untold, lost = log_lines_lost(&untold);

    bad =
        text_buf_printf(
            out,
            "# HELP conductor_build_info Version of the running program; "
            "always 1.\n"
            "# TYPE conductor_build_info gauge\n"
            "conductor_build_info{version=\"%s\"} 1\n"
            "# HELP conductor_memory_limit_bytes Memory that the process may "
            "use: the machine's, or a lower limit of its control groups or "
            "RLIMIT_AS.\n"
            "# TYPE conductor_memory_limit_bytes gauge\n"
            "conductor_memory_limit_bytes %.15g\n"
            "# HELP conductor_cpu_limit_cores Cores that the process may use: "
            "those that it may run on, or a lower limit of its control "
            "groups.\n"
            "# TYPE conductor_cpu_limit_cores gauge\n"
            "conductor_cpu_limit_cores %.15g\n"
            "# HELP conductor_log_lost_total Lines of the log lost because "
            "they could not be written.\n"
            "# TYPE conductor_log_lost_total counter\n"
            "conductor_log_lost_total %" PRIu64 "\n"
            "# HELP conductor_log_lost_untold Lines of the log lost since the "
            "last one that was written.\n"
            "# TYPE conductor_log_lost_untold gauge\n"
            "conductor_log_lost_untold %" PRIu64 "\n",
            CONDUCTOR_VERSION, memory_limit(), cpu_limit(), lost, untold) < 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        bad |= text_buf_printf(out,
                               "# HELP process_%s %s\n"
                               "# TYPE process_%s %s\nprocess_%s %.15g\n",
                               all[i].name, all[i].help, all[i].name,
                               all[i].type, all[i].name, all[i].value) < 0;
    return bad;
}
