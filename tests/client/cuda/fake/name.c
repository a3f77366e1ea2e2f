/* name.c - what the GPUs of the driver of the tests are called. */
#include "tests/client/cuda/fake/name.h"

#include <stdio.h>
#include <string.h>

void fake_name(const char *settings, int device, char *name, size_t size)
{
    char given[64] = "";
    const char *at = settings != NULL ? strstr(settings, "name=") : NULL;
    if (at == NULL || sscanf(at, "name=%60s", given) != 1) {
        (void)snprintf(name, size, "Fake %d", device);
        return;
    }
    for (char *p = strchr(given, '_'); p != NULL; p = strchr(p, '_')) {
        *p = ' ';
    }
    (void)snprintf(name, size, "%s", given);
}
