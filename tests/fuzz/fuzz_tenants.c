/* Any bytes as a tenants_file are refused with a message of one line, or give
 * tenants whose keys lead to their names. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/tenant/tenants.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Keys whose digests are in corpus/tenants. */
static const char *const keys[] = {"one", "two", "three"};

static void check(struct tenants *t, const char *path)
{
    struct tenants *next;
    struct text_buf out;
    char err[CONFIG_ERROR_MAX];

    text_buf_init(&out, SIZE_MAX);
    assert(tenants_size(t) < SHARE_TENANTS);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        struct dispatch_request r = {0};

        tenants_find(t, keys[i], strlen(keys[i]), 7, &r);
        assert(r.weight > 0.0 && (r.tenant ? r.priority == 7 : !r.priority));
        assert((r.tenant == 0) ==
               (strcmp(tenants_name(t, r.tenant), "other") == 0));
        struct tenant_terms terms = {0};
        int64_t retry_us = 0;

        switch (tenants_enter(t, keys[i], strlen(keys[i]), true, 1000 * (int)i,
                              &terms, &retry_us)) {
        case TENANT_UNKNOWN:
            assert(!r.tenant);
            break;
        case TENANT_ENTERS:
            assert(terms.name && *terms.name && terms.slo_ttft_us >= 0);
            break;
        default:
            assert(retry_us > 0);
        }
        tenants_began(t, r.tenant);
        tenants_spent(t, r.tenant, 1000, 5000);
        tenants_count(t, r.tenant, METRICS_COMPLETED);
    }
    assert(tenants_new(path, &next, err) == 0);
    tenants_take(t, next);
    assert(tenants_write(t, &out) == 0);
    text_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[CONFIG_ERROR_MAX] = "", path[40];
    struct tenants *t;
    int fd = memfd_create("tenants", 0);

    if (fd < 0)
        return 0;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size) {
        if (tenants_new(path, &t, err) == 0)
            check(t, path);
        else
            assert(err[0] != '\0' && !strchr(err, '\n') && !t);
        tenants_free(t);
    }
    close(fd);
    return 0;
}
