#include "base/entropy.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

uint64_t entropy_u64(void)
{
    uint64_t number = 0;

    while (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        if (errno != EINTR)
            abort();
    return number;
}
