/* Metrics of the process, with the names of Prometheus's client libraries, and
 * the version. */
#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/report/internal.h"

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

    bad = text_buf_printf(
              out,
              "# HELP conductor_build_info Version of the running program; "
              "always 1.\n"
              "# TYPE conductor_build_info gauge\n"
              "conductor_build_info{version=\"%s\"} 1\n",
              CONDUCTOR_VERSION) < 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        bad |= text_buf_printf(out,
                               "# HELP process_%s %s\n"
                               "# TYPE process_%s %s\nprocess_%s %.15g\n",
                               all[i].name, all[i].help, all[i].name,
                               all[i].type, all[i].name, all[i].value) < 0;
    return bad;
}
