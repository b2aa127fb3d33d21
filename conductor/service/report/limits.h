/* Limits on memory and CPU that control groups set, version 1 or 2. */
#ifndef CONDUCTOR_SERVICE_REPORT_LIMITS_H
#define CONDUCTOR_SERVICE_REPORT_LIMITS_H

/*
 * Return the least of `most` and of the limits of the process's control group
 * and of all groups above it: each of them holds for the process.
 *   root    where the groups are: "/sys/fs/cgroup". In a container this may be
 *           the process's own group, with nothing above it.
 *   groups  file with the process's groups: "/proc/self/cgroup"
 *   most    in bytes, or in cores; returned where no group has a limit
 * limits_cpus() reads groups of version 2 alone.
 */
double limits_memory(const char *root, const char *groups, double most);
double limits_cpus(const char *root, const char *groups, double most);

#endif
